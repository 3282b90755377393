"""The recurrences of `gyral.ops.gated` as operators of torch, for `torch.compile` and `torch.export`.

Eager mode does not call them, because an operator call takes longer than a function call. An operator returns
no None and no pooled buffer: absent tensors are empty, and backward copies the tensors that the kernels overwrite.
"""

from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd
from gyral.ops.gated import reference
from gyral.ops.gated.arguments import (
    KEEPS_PRODUCT,
    Arguments,
    FixedArguments,
    Results,
    Tensors,
    make_arguments,
    run_backward,
    run_forward,
)


def run(fixed: FixedArguments, tensors: Tensors) -> tuple[Tensor, Tensor, Tensor | None]:
    """Call the operator; see `gyral.ops.gated.run`."""
    outputs, hidden, cell, *_ = gated(*tensors, *_flatten(fixed))
    return outputs, hidden, None if tensors.cell_state is None else cell


def _flatten(fixed: FixedArguments) -> tuple[Any, ...]:
    """Return the last arguments of the operator."""
    masks = [keep if isinstance(keep, Tensor) else None for keep in (fixed.keep, fixed.keep_cell_state)]
    means = [keep if isinstance(keep, float) else 0.0 for keep in (fixed.keep, fixed.keep_cell_state)]
    kind, _, lengths, units, chunk, _, drop, starts, epsilon, partner = fixed
    return *masks, drop, lengths, starts, partner, kind, units, chunk, *means, epsilon


def _fixed_arguments(
    keep: Tensor | None,
    keep_cell: Tensor | None,
    drop: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    partner: Tensor | None,
    kind: str,
    units: int,
    chunk: int,
    keep_mean: float,
    keep_cell_mean: float,
    epsilon: float,
) -> FixedArguments:
    """Undo `_flatten`."""
    keeps = [mean or None if mask is None else mask for mask, mean in ((keep, keep_mean), (keep_cell, keep_cell_mean))]
    return FixedArguments(kind, keeps[0], lengths, units, chunk, keeps[1], drop, starts, epsilon, partner)


COUNT = len(Tensors._fields)
MASKS = 6  # the optional tensors after those with a gradient, from keep to partner


@torch.library.custom_op("gyral::gated", mutates_args=())
def gated(
    inputs: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    weight_hh: Tensor,
    extra: Tensor | None,
    hidden: Tensor,
    cell: Tensor | None,
    fresh: Tensor | None,
    keep: Tensor | None,
    keep_cell: Tensor | None,
    drop: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    partner: Tensor | None,
    kind: str,
    units: int,
    chunk: int,
    keep_mean: float,
    keep_cell_mean: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return outputs, final hidden and cell vectors, and parts, cells and kept part of the product for backward."""
    fixed = _fixed_arguments(
        keep, keep_cell, drop, lengths, starts, partner, kind, units, chunk, keep_mean, keep_cell_mean, epsilon
    )
    arguments = make_arguments(fixed, Tensors(inputs, weight_ih, bias, weight_hh, extra, hidden, cell, fresh))
    results = run_forward(arguments)
    return (
        results.outputs,
        results.hidden,
        _present(results.cell_state, inputs),
        arguments.parts,
        _present(_clear(results.cell_states, lengths), inputs),
        _present(_clear(results.kept, lengths), inputs),
    )


def _present(tensor: Tensor | None, like: Tensor) -> Tensor:
    return like.new_empty(0) if tensor is None else tensor


def _clear(values: Tensor | None, lengths: Tensor | None) -> Tensor | None:
    """Fill values (T, B, …) beyond the lengths with zeros: kernels leave them uninitialized, operators must not."""
    if values is None or lengths is None:
        return values
    time = torch.arange(len(values), device=lengths.device).unsqueeze(1)
    return values.masked_fill_((time >= lengths).unsqueeze(2), 0.0)


@gated.register_fake
def _(inputs: Tensor, weight_ih: Tensor, *values: Any) -> tuple[Tensor, ...]:
    tensors = Tensors(inputs, weight_ih, *values[: COUNT - 2])
    fixed = _fixed_arguments(*values[COUNT - 2 :])
    leading, new = inputs.shape[:2], inputs.new_empty
    cell = tensors.cell_state
    return (
        new(*leading, tensors.hidden.shape[1]),
        new(tensors.hidden.shape),
        new(0) if cell is None else new(cell.shape),
        new(*leading, weight_ih.shape[0]),
        new(0) if cell is None else new(*leading, cell.shape[1]),
        new(*leading, fixed.units) if fixed.kind in KEEPS_PRODUCT else new(0),
    )


@torch.library.custom_op("gyral::gated_backward", mutates_args=())
def gated_backward(
    grad_outputs: Tensor,
    grad_hidden: Tensor,
    grad_cell: Tensor,
    outputs: Tensor,
    parts: Tensor,
    cells: Tensor,
    kept: Tensor,
    inputs: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    weight_hh: Tensor,
    extra: Tensor | None,
    hidden: Tensor,
    cell: Tensor | None,
    fresh: Tensor | None,
    keep: Tensor | None,
    keep_cell: Tensor | None,
    drop: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    partner: Tensor | None,
    kind: str,
    units: int,
    chunk: int,
    keep_mean: float,
    keep_cell_mean: float,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of the first arguments of `gated`, from `inputs` to `fresh`."""
    fixed = _fixed_arguments(
        keep, keep_cell, drop, lengths, starts, partner, kind, units, chunk, keep_mean, keep_cell_mean, epsilon
    )
    tensors = Tensors(inputs, weight_ih, bias, weight_hh, extra, hidden, cell, fresh)
    arguments: Arguments = make_arguments(fixed, tensors, parts.clone(memory_format=torch.contiguous_format))
    results = Results(
        outputs.contiguous(),
        hidden,
        cell,
        None if cell is None else cells.contiguous(),
        kept.clone(memory_format=torch.contiguous_format) if kind in KEEPS_PRODUCT else None,
    )
    gradients = grad_outputs, grad_hidden, None if cell is None else grad_cell
    found = run_backward(arguments, results, tensors, gradients, needs_inputs=True)
    return tuple(_present(gradient, inputs) for gradient in found)  # type: ignore[return-value]


@gated_backward.register_fake
def _(*values: Any) -> tuple[Tensor, ...]:
    tensors = values[7 : 7 + COUNT]
    like = tensors[0]
    return tuple(like.new_empty(0) if tensor is None else like.new_empty(tensor.shape) for tensor in tensors)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    outputs, _, _, *saved = output
    ctx.save_for_backward(outputs, *saved, *inputs[: COUNT + MASKS])
    ctx.options = inputs[COUNT + MASKS :]


def _reference_backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    tensors, masks = ctx.saved_tensors[4 : 4 + COUNT], ctx.saved_tensors[4 + COUNT :]
    run_reference = reference.of(_fixed_arguments(*masks, *ctx.options))
    found = autograd.differentiate(run_reference, tensors, gradients[:3])
    return *found, *[None] * (len(masks) + len(ctx.options))


@autograd.differentiable_by(_reference_backward)
def _backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    given = ctx.saved_tensors[4:]
    found = gated_backward(*gradients[:3], *ctx.saved_tensors, *ctx.options)
    absent = [None] * (len(given) - COUNT + len(ctx.options))
    return *(None if tensor is None else one for tensor, one in zip(given[:COUNT], found, strict=True)), *absent


gated.register_autograd(_backward, setup_context=_setup_context)
