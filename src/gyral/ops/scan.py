"""The time loop: one step of a recurrence, repeated over the leading dimension."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten


class Shared(NamedTuple):
    """Marks, among the leaves of a sequence, what is the same at all its steps."""

    value: Any


def is_shared(node: Any) -> bool:
    """Tell the tree functions of torch not to look into what is fixed."""
    return isinstance(node, Shared)


def scan(
    step: Callable[[Any, Any], tuple[Tensor, Any]], sequence: Any, state: Any, lengths: Tensor | None = None
) -> tuple[Tensor, Any]:
    """Take a step for each time of a sequence.

    Args:
        step: what a time has of the sequence, and the state before → output (B, …) and new state.
        sequence: a structure of tensors (T, B, …), None and `Shared`; a step gets it without its first dimension.
        state: before the first step; every leaf (B, …).
        lengths: (B,) integers in [1, T]. Steps beyond a row's length leave its state alone and put out zeros.

    Returns:
        outputs (T, B, …) and the state after the last step.
    """
    leaves, structure = tree_flatten(sequence, is_leaf=is_shared)
    steps = next(leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor))
    # unbind once: indexing x[t] in the loop would make each step's backward fill a full-size tensor
    unbound = [leaf.unbind(0) if isinstance(leaf, Tensor) else (leaf,) * steps for leaf in leaves]
    outputs = []
    for time, parts in enumerate(zip(*unbound, strict=True)):
        output, new = step(tree_unflatten(parts, structure), state)
        if lengths is not None:
            going = time < lengths
            new = tree_map(partial(_choose, going), new, state)
            output = _choose(going, output, torch.zeros_like(output))
        state = new
        outputs.append(output)
    return torch.stack(outputs), state


def _choose(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return `new` (B, …) in the rows where the mask (B,) is True, `old` in the others."""
    return torch.where(rows.view(-1, *[1] * (new.dim() - 1)), new, old)
