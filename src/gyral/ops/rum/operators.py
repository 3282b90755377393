"""RUM as operators of torch, for `torch.compile` and `torch.export`.

Eager mode does not call them, because an operator call takes longer than a function call. An operator returns
no None and no pooled buffer: absent tensors are empty, and backward copies the tensors that the kernels overwrite.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd
from gyral.ops.rum import reference
from gyral.ops.rum.arguments import Arguments, Results, find_kernels, make_arguments, run_backward
from gyral.ops.rum.reference import FixedArguments, Options, Tensors

COUNT = len(Tensors._fields)
MASKS = 3  # mask of zoneout, lengths, starts


def run(fixed: FixedArguments, tensors: Tensors) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Call the operator; see `gyral.ops.rum.run`."""
    masks, (keep, _, _, options, autocast_dtype) = fixed.split()
    probability = 0.0 if keep is None else float(keep)
    outputs, hidden, memory, cosines, *_ = rum(*tensors, *masks, probability, *options, autocast_dtype)
    return outputs, hidden, None if tensors.memory is None else memory, cosines


def _fixed_arguments(masks: Sequence[Tensor | None], numbers: Sequence[Any]) -> FixedArguments:
    probability, *options, autocast_dtype = numbers
    return FixedArguments(probability or None, None, None, Options(*options), autocast_dtype).joined(*masks)


def _results(arguments: Arguments, results: Results) -> list[Tensor]:
    """Return the results of the operator, no two in the same memory; empty tensors stand for None."""
    outputs, hidden, memory, cosines, saved = results
    tensors = (outputs, hidden, memory, cosines.clone(), arguments.parts, *saved)
    return [arguments.parts.new_empty(0) if tensor is None else tensor for tensor in tensors]


def _with_none(saved: list[Tensor]) -> tuple[Tensor | None, ...]:
    """Undo the replacement of None by empty tensors in `_results`."""
    return tuple(None if tensor.shape == (0,) else tensor for tensor in saved)


@torch.library.custom_op("gyral::rum", mutates_args=())
def rum(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    mask: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    probability: float,
    activation: str,
    update_gate: bool,
    eta: float | None,
    epsilon: float,
    autocast_dtype: torch.dtype | None,
) -> list[Tensor]:
    """Return outputs, final hidden state and memory, cosines, and parts and further values for backward."""
    numbers = probability, activation, update_gate, eta, epsilon, autocast_dtype
    fixed = _fixed_arguments((mask, lengths, starts), numbers)
    tensors = Tensors(inputs, weight_ih, weight_hh, bias, hidden, memory, norms)
    kernels, dtype = find_kernels(fixed, tensors)
    arguments = make_arguments(fixed, tensors, dtype)
    return _results(arguments, kernels.forward(arguments))


@rum.register_fake
def _(*values: Any) -> list[Tensor]:
    tensors = Tensors(*values[:COUNT])
    fixed = _fixed_arguments(values[COUNT : COUNT + MASKS], values[COUNT + MASKS :])
    kernels, dtype = find_kernels(fixed, tensors)
    arguments = make_arguments(fixed, tensors, dtype)
    # the memories that resets replace are saved, as many as there are resets
    has_resets = fixed.starts is not None and tensors.memory is not None
    resets: Any = torch.library.get_ctx().new_dynamic_size() if has_resets else 0
    return _results(arguments, kernels.allocate(arguments, resets))


@torch.library.custom_op("gyral::rum_backward", mutates_args=())
def rum_backward(
    grad_outputs: Tensor,
    grad_hidden: Tensor,
    grad_memory: Tensor | None,
    outputs: Tensor,
    final_hidden: Tensor,
    final_memory: Tensor,
    parts: Tensor,
    saved: list[Tensor],
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    mask: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    probability: float,
    activation: str,
    update_gate: bool,
    eta: float | None,
    epsilon: float,
    autocast_dtype: torch.dtype | None,
) -> list[Tensor]:
    """Return the gradients of the first arguments of `rum`, from `inputs` to `norms`."""
    numbers = probability, activation, update_gate, eta, epsilon, autocast_dtype
    fixed = _fixed_arguments((mask, lengths, starts), numbers)
    tensors = Tensors(inputs, weight_ih, weight_hh, bias, hidden, memory, norms)
    kernels, dtype = find_kernels(fixed, tensors)
    parts, *copies = (tensor.clone(memory_format=torch.contiguous_format) for tensor in (parts, *saved))
    arguments = make_arguments(fixed, tensors, dtype, parts)
    results_memory = None if memory is None else final_memory
    results = Results(outputs.contiguous(), final_hidden, results_memory, outputs.new_empty(0), _with_none(copies))
    gradients = grad_outputs, grad_hidden, grad_memory
    _, found = run_backward(kernels, arguments, results, tensors, gradients, needs_inputs=True)
    return [inputs.new_empty(0) if gradient is None else gradient for gradient in found]


@rum_backward.register_fake
def _(*values: Any) -> list[Tensor]:
    inputs, *others = values[8 : 8 + COUNT]
    return [inputs.new_empty(0) if tensor is None else tensor.new_empty(tensor.shape) for tensor in (inputs, *others)]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    outputs, hidden, memory, cosines, *saved = output
    ctx.mark_non_differentiable(cosines, *saved)
    ctx.save_for_backward(*inputs[: COUNT + MASKS], outputs, hidden, memory, *saved)
    ctx.numbers = inputs[COUNT + MASKS :]


def _reference_backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    tensors, masks = ctx.saved_tensors[:COUNT], ctx.saved_tensors[COUNT : COUNT + MASKS]
    found = autograd.differentiate(reference.of(_fixed_arguments(masks, ctx.numbers)), tensors, gradients[:3])
    return *found, *[None] * (MASKS + len(ctx.numbers))


@autograd.differentiable_by(_reference_backward)
def _kernel_backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    given = ctx.saved_tensors[: COUNT + MASKS]
    outputs, hidden, memory, parts, *saved = ctx.saved_tensors[COUNT + MASKS :]
    grad_memory = None if given[5] is None else gradients[2]
    gradients = rum_backward(*gradients[:2], grad_memory, outputs, hidden, memory, parts, saved, *given, *ctx.numbers)
    found = [None if tensor is None else one for tensor, one in zip(given[:COUNT], gradients, strict=True)]
    return *found, *[None] * (MASKS + len(ctx.numbers))


def _backward(ctx: Any, gradients: list[Tensor]) -> tuple[Tensor | None, ...]:
    return _kernel_backward(ctx, *gradients)


rum.register_autograd(_backward, setup_context=_setup_context)
