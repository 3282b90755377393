"""Checks of the arguments with which a recurrent network is called. Each error is one line."""

import functools
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from gyral.cells.base import State
from gyral.cells.inputs import StepInputs
from gyral.core.compat import transform_is_active
from gyral.core.errors import InputError, OptionError
from gyral.ops.autograd import has_autocast
from gyral.ops.compiler import is_traced
from gyral.ops.declaration import check_tensor


def check_inputs(inputs: Any, width: int, parameter: Tensor, batch_first: bool = False) -> tuple[int, int]:
    """Return (T, B) of inputs (T, B, X), or of `StepInputs` or any structure of tensors with these leading dimensions.

    Raises:
        InputError: Inputs have another number of dimensions or columns, or see `check_like`.
    """
    first = values = inputs.values if isinstance(inputs, StepInputs) else inputs
    if isinstance(values, Tensor):
        check_like("inputs", values, parameter)
        if values.dim() != 3 or values.shape[2] != width:
            form = f"(B, T, {width})" if batch_first else f"(T, B, {width})"
            raise InputError(f"inputs have shape {tuple(values.shape)}, must have {form}")
    if not isinstance(inputs, Tensor):
        first, *others = [leaf for leaf in tree_leaves(inputs) if isinstance(leaf, Tensor)] or [torch.empty(())]
        for leaf in others:
            check_tensor("inputs", leaf, parameter.device)
        if any(leaf.dim() < 2 for leaf in (first, *others)):
            raise InputError("inputs must be tensors with time and batch dimensions")
        if any(leaf.shape[:2] != first.shape[:2] for leaf in others):
            raise InputError("all inputs must have the same number of steps and rows")
    time, batch = (1, 0) if batch_first else (0, 1)
    return first.shape[time], first.shape[batch]


def check_like(name: str, tensor: Tensor, like: Tensor, of: str = "the parameters") -> None:
    """Check that a tensor is dense, and has the device and the dtype of another one; under autocast any float dtype.

    Raises:
        InputError: See `gyral.ops.declaration.check_tensor`.
    """
    dtype: torch.dtype | None = like.dtype
    if tensor.dtype == dtype and tensor.device == like.device and tensor.layout == torch.strided:
        if not tensor.is_nested:
            return
    elif tensor.is_floating_point() and like.is_floating_point():
        device = tensor.device.type
        if has_autocast(device) and torch.is_autocast_enabled(device):
            dtype = None
    check_tensor(name, tensor, like.device, dtype, of)


def check_parameters(cell: nn.Module) -> None:
    """Check that the parameters of a cell that runs in functions of torch are on one device.

    Raises:
        InputError: They are on several devices.
    """
    first: torch.device | None = None
    for name, parameter in cell.named_parameters():
        first = first or parameter.device
        check_tensor(f"parameter {name}", parameter, first, of="the first parameter")


def check_device(device: Any) -> torch.device | None:
    """Return a device of torch, or None as it is.

    Raises:
        OptionError: It is not a device.
    """
    try:
        return None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise OptionError("device", device, "must be a device of torch, such as cpu or cuda:0") from None


def check_lengths(lengths: Tensor | Sequence[int], steps: int, batch_size: int, device: torch.device) -> Tensor:
    """Return lengths (B,) as int64 on a device.

    Raises:
        InputError: They are not B integers from 0 to T, or have no values.
    """
    error = InputError(f"lengths must be {batch_size} integers from 0 to {steps}")
    if not isinstance(lengths, Tensor):
        given = [*lengths] if isinstance(lengths, Iterable) else [None]
        if any(isinstance(length, bool) or not isinstance(length, Integral) for length in given):
            raise error
        lengths = torch.tensor([*map(int, given)], dtype=torch.int64, device="cpu")
    check_movable("lengths", lengths, device)
    is_integer = not (lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool)
    if lengths.shape != (batch_size,) or not is_integer:
        raise error
    if batch_size > 0 and not is_traced() and (lengths.min() < 0 or lengths.max() > steps):
        raise error
    return lengths.to(device, torch.int64)


def check_starts(
    starts: Tensor, steps: int, batch_size: int, device: torch.device, batch_first: bool = False
) -> Tensor:
    """Return the argument `starts` as (T, B) on a device.

    Raises:
        InputError: It is not a bool tensor (T, B), or (B, T) with `batch_first`, or has no values.
    """
    shape = (batch_size, steps) if batch_first else (steps, batch_size)
    if not isinstance(starts, Tensor):
        raise InputError(f"starts is a {type(starts).__name__}, must be a bool tensor of shape {shape}")
    check_movable("starts", starts, device)
    if starts.shape != shape or starts.dtype != torch.bool:
        raise InputError(
            f"starts is a {starts.dtype} tensor of shape {tuple(starts.shape)}, must be a bool tensor of shape {shape}"
        )
    return (starts.transpose(0, 1) if batch_first else starts).to(device)


def check_movable(name: str, tensor: Tensor, device: torch.device) -> None:
    """Check that a tensor is dense, and that its values can be copied to a device.

    Raises:
        InputError: It is sparse or nested, or on the meta device.
    """
    check_tensor(name, tensor, device if tensor.device.type == "meta" else tensor.device)


def check_state(state: Any, like: State, *leading: int) -> State:
    """Return a state in the structure of `like`; its tensors may be in any nested tuples.

    Args:
        state: The state of one cell, or of several cells stacked.
        like: The state of the cell for one row.
        leading: Dimensions that the tensors have in place of the batch dimension of `like`.

    Raises:
        InputError: The state has another number of tensors, or they have other shapes or are not like those of the
            initial state; see `check_like`.
    """
    expected, leaves = leaves_of(like), leaves_of(state)
    shapes = [(*leading, *leaf.shape[1:]) for leaf in expected]
    for leaf, one in zip(leaves, expected, strict=False):
        if isinstance(leaf, Tensor):
            check_like("states", leaf, one, "the initial state")
    given = [tuple(leaf.shape) if isinstance(leaf, Tensor) else type(leaf).__name__ for leaf in leaves]
    if given != shapes:
        raise InputError(f"state has tensors of shapes {_join(given)}, must have {_join(shapes)}")
    return with_leaves(like, leaves)


def leaves_of(state: Any) -> list[Any]:
    """Return the parts of a state that are no tuples or lists."""
    if isinstance(state, Tensor):
        return [state]
    if is_flat(state):
        return [*state]
    return tree_leaves(state, is_leaf=lambda part: isinstance(part, dict))  # the order of its entries says nothing


def with_leaves(like: State, leaves: Iterable[Any]) -> State:
    """Return a state with the structure of `like` and other tensors."""
    return type(like)(*leaves) if is_flat(like) else tree_unflatten(leaves, tree_flatten(like)[1])


def is_flat(state: Any) -> bool:
    """Return whether a state is a named tuple of tensors, for which functions of torch take ten times as long."""
    return isinstance(state, tuple) and hasattr(state, "_make") and set(map(type, state)) == {Tensor}


def has_empty(lengths: Tensor) -> bool:
    """Return whether a length may be 0; while a compiler traces, it may."""
    return is_traced() or (lengths.numel() > 0 and bool(lengths.min() == 0))


def _join(shapes: list[Any]) -> str:
    return ", ".join(map(str, shapes)) or "none"


def copied(results: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    """Return copies of tensors that a backward pass may read, so that callers may overwrite them.

    A state that is a part of a larger tensor, as the last inputs of a convolution are, is also copied: it would keep
    all of it in memory.
    """
    # torch.jit.trace checks its graph against one that it records without gradients
    every, is_compiling = torch.jit.is_tracing(), torch.compiler.is_compiling()
    has_memory = not (every or is_compiling or transform_is_active())

    def copy(leaf: Any, owns: bool = True) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if every or leaf.requires_grad:
            if every or is_compiling:  # compilers know no nodes of the graph
                return leaf.clone()
            # of the results of an operator, see `gyral.ops.operator`; a backward pass may read all others
            if leaf.output_nr < getattr(leaf.grad_fn, "kept_results", leaf.output_nr + 1):
                return leaf.clone()
        return leaf.clone() if owns and has_memory and leaf.untyped_storage().nbytes() > leaf.nbytes else leaf

    outputs, state = results
    return copy(outputs, False), copy(state) if isinstance(state, Tensor) else map_leaves(copy, state)


def map_leaves(function: Callable[..., Any], state: Any, *others: Any) -> Any:
    """Return `tree_map` of a state and others like it; see `is_flat`."""
    if isinstance(state, tuple) and hasattr(state, "_make") and set(map(type, state)) == {Tensor}:  # is_flat, inlined
        return type(state)(*map(function, state, *others))  # `state._make` fails in the compiler of PyTorch 2.11
    if type(state) is tuple:  # of several cells
        return tuple(map(functools.partial(map_leaves, function), state, *others))
    return tree_map(function, state, *others)


def zero_padding(inputs: Any, lengths: Tensor) -> Any:
    """Return inputs (T, B, …) with zeros beyond the lengths, where NaN would reach the gradients of the parameters.

    Inputs without NaN and infinity are returned as they are.
    """

    def fill(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        # a sum takes a tenth of the time of a copy; on a GPU, reading it would wait for all kernels
        if leaf.device.type == "cpu" and not is_traced() and bool(leaf.detach().sum().isfinite()):
            return leaf
        padding = torch.arange(leaf.shape[0], device=leaf.device).unsqueeze(1) >= lengths
        return leaf.masked_fill(padding.view(*padding.shape, *[1] * (leaf.dim() - 2)), 0)

    return tree_map(fill, inputs)
