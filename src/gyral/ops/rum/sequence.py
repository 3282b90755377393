"""RUM over a whole sequence: projections and weight gradients are single products, kernels run the recurrence.

`gyral.ops.rum.arguments.MODULES` names one module of kernels per device type, whose interface is described there. The
reference of the kernels is `gyral.ops.rum.reference.run`. Compiled and exported models call the operators of
`gyral.ops.rum.operators` instead of the kernels.
"""

from typing import Any

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels
from gyral.ops.rum import operators, reference
from gyral.ops.rum.arguments import (
    MODULES,
    Arguments,
    Gradients,
    Kernels,
    Results,
    find_kernels,
    make_arguments,
    run_backward,
)
from gyral.ops.rum.reference import FixedArguments, Options, Tensors

__all__ = [
    "MODULES",
    "Arguments",
    "Gradients",
    "Kernels",
    "Options",
    "Results",
    "run",
    "subcell_arguments",
    "unsupported_reason",
]


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def subcell_arguments(
    *,
    parts: Tensor,
    weight_hh: Tensor,
    extra: Tensor | None,
    hidden: Tensor,
    cell_state: None,
    lengths: Tensor | None,
    keep: Tensor | float | None,
    options: Options,
    starts: Tensor | None = None,
) -> Arguments:
    """Return the arguments for λ = 0 of a `gyral.ops.fast_slow.SubCell`: parts (T, B, G N), norms as `extra`."""
    parts = parts.unflatten(-1, (-1, hidden.shape[1]))
    return Arguments(parts, weight_hh, hidden, None, extra, keep, lengths, options, starts)


def run(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    *,
    keep: Tensor | float | None,
    lengths: Tensor | None,
    options: Options,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Run RUM over inputs (T, B, X); differentiable with respect to all tensors but `keep`.

    Under autocast the products use its dtype if the kernels support it; all other operations use the dtype of the
    parameters. `gyral.ops.rum.reference.run` provides second derivatives.

    Args:
        inputs, weight_ih, weight_hh, bias: See `gyral.cells.rum.RUMCell`.
        hidden, memory, norms, keep, lengths, options, starts: See `gyral.ops.rum.arguments.Arguments`.

    Returns:
        outputs (T, B, N), the hidden state (B, N) and the memory (B, N, N) or None after the last step of each
        sequence, and cos θ_t (T, B), which has no gradient.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    device, dtype, autocast_dtype = inputs.device.type, weight_hh.dtype, None
    if torch.is_autocast_enabled(device):
        inputs, hidden = inputs.to(dtype), hidden.to(dtype)
        memory = None if memory is None else memory.to(dtype)
        autocast_dtype = torch.get_autocast_dtype(device)
    kernels.check_dtypes(dtype, inputs, hidden, memory)
    fixed = FixedArguments(keep, lengths, starts, options, autocast_dtype)
    tensors = Tensors(inputs, weight_ih, weight_hh, bias, hidden, memory, norms)
    with autograd.outside_autocast(inputs.device):
        if torch.compiler.is_compiling():
            return operators.run(fixed, tensors)
        return _Run.apply(fixed, autograd.needs_gradient(tensors), *tensors)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fixed: FixedArguments, needs_gradient: bool, *given: Any) -> tuple[Any, ...]:
        tensors = Tensors(*given)
        ctx.kernels, ctx.dtype = find_kernels(fixed, tensors)
        arguments = make_arguments(fixed, tensors, ctx.dtype, pooled=True)
        results = ctx.kernels.forward(arguments)
        masks, ctx.fixed = fixed.split()
        ctx.save_for_backward(results.outputs, results.hidden, results.memory, *masks, *tensors)
        if needs_gradient:
            ctx.saved = arguments.parts, results.saved
        else:
            buffers.release(arguments.parts)
        ctx.mark_non_differentiable(results.cosines)
        return results.outputs, results.hidden, results.memory, results.cosines

    @staticmethod
    def _second(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients that can be differentiated again."""
        _, _, _, *given = ctx.saved_tensors
        masks, tensors = given[:3], given[3:]
        run_reference = reference.of(ctx.fixed.joined(*masks))
        return None, None, *autograd.differentiate(run_reference, tensors, gradients[:3])

    @staticmethod
    @autograd.differentiable_by(_second)
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        outputs, hidden, memory, *given = ctx.saved_tensors
        fixed, tensors = ctx.fixed.joined(*given[:3]), Tensors(*given[3:])
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        (parts, saved), ctx.saved = ctx.saved or (None, ()), None
        arguments = make_arguments(fixed, tensors, ctx.dtype, parts)
        if parts is None:
            results = ctx.kernels.forward(arguments)
        else:
            results = Results(outputs, hidden, memory, outputs.new_empty(0), saved)
        needs_inputs = ctx.needs_input_grad[2]
        parts, found = run_backward(ctx.kernels, arguments, results, tensors, gradients[:3], needs_inputs=needs_inputs)
        buffers.release(parts)
        return None, None, *found
