"""The time loop: one step of a recurrence, repeated over the leading dimension."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten


class Shared(NamedTuple):
    """Marks a leaf of a sequence that all steps share."""

    value: Any


def is_shared(node: Any) -> bool:
    """Return whether a node is `Shared`, which the tree functions of torch treat as a leaf."""
    return isinstance(node, Shared)


def scan(
    step: Callable[[Any, Any], tuple[Tensor, Any]], sequence: Any, state: Any, lengths: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Run a step function over a sequence.

    Args:
        step: Function of the sequence at one time step and of the state; returns the output (B, …) and the new state.
        sequence: A structure of tensors (T, B, …), None and `Shared`; a step receives it without its first dimension.
        state: The state before the first step; every leaf (B, …).
        lengths: (B,) integers in [1, T]. Steps beyond the length of a row do not change its state, and their outputs
            are zero.

    Returns:
        outputs (T, B, …) and the state after the last step.
    """
    leaves, structure = tree_flatten(sequence, is_leaf=is_shared)
    steps = next(leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor))
    # unbind once: with x[t] in the loop, the backward of each step would fill a full-size tensor
    unbound = [leaf.unbind(0) if isinstance(leaf, Tensor) else (leaf,) * steps for leaf in leaves]
    outputs = []
    for time, parts in enumerate(zip(*unbound, strict=True)):
        output, new = step(tree_unflatten(parts, structure), state)
        if lengths is not None:
            active = time < lengths
            new = tree_map(partial(_choose, active), new, state)
            output = _choose(active, output, torch.zeros_like(output))
        state = new
        outputs.append(output)
    return torch.stack(outputs), state


def _choose(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return `new` (B, …) in the rows where the mask (B,) is True, and `old` in the other rows."""
    return torch.where(rows.view(-1, *[1] * (new.dim() - 1)), new, old)
