"""The time loop: one step of a recurrence, repeated over the leading dimension."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_map_only, tree_unflatten

from gyral.core import compat
from gyral.core.errors import UserError
from gyral.ops.compiler import is_exporting_to_onnx


class Shared(NamedTuple):
    """Marks a leaf of a sequence that all steps share."""

    value: Any


def is_shared(node: Any) -> bool:
    """Return whether a node is `Shared`, which the tree functions of torch treat as a leaf."""
    return isinstance(node, Shared)


def scan(
    step: Callable[[Any, Any], tuple[Tensor, Any]],
    sequence: Any,
    state: Any,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    initial: Any = None,
) -> tuple[Tensor, Any]:
    """Run a step function over a sequence.

    Args:
        step: Function of the sequence at one time step and of the state; returns the output (B, …) and the new state.
        sequence: A structure of tensors (T, B, …), None and `Shared`; a step receives it without its first dimension.
        state: The state before the first step; every leaf (B, …).
        lengths: (B,) integers in [1, T]. Steps beyond the length of a row do not change its state, and their outputs
            are zero.
        starts: (T, B) bool. Where it is True, the step reads `initial` instead of the state of its row.
        initial: A state of the same structure; needed with `starts`.

    Returns:
        outputs (T, B, …) and the state after the last step.
    """
    leaves, structure = tree_flatten(sequence, is_leaf=is_shared)
    steps = next(leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor))
    as_operator = is_any_number(steps)
    if as_operator and is_exporting_to_onnx():
        # ONNX has no gradients, and tracing the operator warns of tensors that are not leaves of a graph
        leaves, state, initial = tree_map_only(Tensor, Tensor.detach, (leaves, state, initial))

    def masked_step(time: Any, parts: Sequence[Any], reset: Tensor | None, state: Any) -> tuple[Tensor, Any]:
        before = state if reset is None else tree_map(partial(choose_rows, reset), initial, state)
        output, new = step(tree_unflatten(parts, structure), before)
        if lengths is not None:
            active = time < lengths
            new = tree_map(partial(choose_rows, active), new, state)
            output = choose_rows(active, output, torch.zeros_like(output))
        return output, new

    if as_operator:
        return _scan_as_operator(masked_step, leaves, state, starts)
    # unbind once: with x[t] in the loop, the backward of each step would fill a full-size tensor
    unbound = [leaf.unbind(0) if isinstance(leaf, Tensor) else (leaf,) * steps for leaf in leaves]
    resets = (None,) * steps if starts is None else starts.unbind(0)
    outputs = []
    for time, reset, parts in zip(range(steps), resets, zip(*unbound, strict=True), strict=True):
        output, state = masked_step(time, parts, reset, state)
        outputs.append(output)
    return torch.stack(outputs), state


def _scan_as_operator(
    step: Callable[[Tensor, Sequence[Any], Tensor | None, Any], tuple[Tensor, Any]],
    leaves: Sequence[Any],
    state: Any,
    starts: Tensor | None,
) -> tuple[Tensor, Any]:
    """Run the loop as one operator of torch, which is Scan in ONNX: the graph has one step, for any number of steps.

    Args:
        step: Function of time, of the leaves of the sequence at this time, of starts and of the state.
        leaves: The leaves of the sequence.
        state: The state before the first step.
        starts: (T, B), or None.
    """
    # the operator does not accept tensors of one memory, such as the coefficients of rotations, which are views of one
    leaves = [tree_map_only(Tensor, _copied, leaf) if is_shared(leaf) else leaf for leaf in leaves]
    if any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in tree_leaves(leaves)):
        # the operator has no gradients of them
        raise UserError("a loop over complex numbers cannot be exported for any number of steps, only for a fixed one")
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    states, structure = tree_flatten(state)
    time = torch.arange(tensors[0].shape[0], device=tensors[0].device)

    def combine(carried: list[Tensor], values: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        now, *given = values
        reset = given.pop() if starts is not None else None
        rest = iter(given)
        parts = [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        before = [leaf.to(first.dtype) for leaf, first in zip(carried, states, strict=True)]
        output, new = step(now, parts, reset, tree_unflatten(before, structure))
        copied = _copied(output)
        if dynamic and not is_exporting_to_onnx():
            # Inductor sizes the outputs by the integers that the operator gets: this makes the batch size one of them
            copied = copied.view(rows, *output.shape[1:])
        return [_carried(leaf) for leaf in tree_leaves(new)], copied

    # a batch size that differs from an earlier export would become a symbol, and fail
    rows = states[0].shape[0]
    dynamic = not isinstance(rows, int)
    inputs = [time, *tensors, *([] if starts is None else [starts])]
    final, outputs = compat.scan_operator(combine, [_carried(leaf) for leaf in states], inputs, dynamic)
    final = [leaf.to(first.dtype) for leaf, first in zip(final, states, strict=True)]
    return outputs, tree_unflatten(final, structure)


def _carried(leaf: Tensor) -> Tensor:
    """Return a leaf of a state as the operator carries it: numbers have to be floating-point for its gradients."""
    return _copied(leaf if leaf.is_floating_point() or is_exporting_to_onnx() else leaf.double())


def _copied(tensor: Tensor) -> Tensor:
    """Return a contiguous copy: the operator must not return its inputs, and layouts must not change."""
    return tensor.clone(memory_format=torch.contiguous_format)


def is_any_number(steps: int) -> bool:
    """Return whether a number of steps is the symbol of an exporter, so that a loop over them has no fixed length."""
    return isinstance(steps, torch.SymInt) and torch.compiler.is_exporting()


def choose_rows(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    """Return `new` (B, …) in the rows where the mask (B,) is True, and `old` in the other rows."""
    return torch.where(rows.view(-1, *[1] * (new.dim() - 1)), new, old)
