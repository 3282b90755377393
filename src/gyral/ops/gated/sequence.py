"""Recurrences whose step is one matrix product and functions of single rows, over a whole sequence.

A step computes P_t + h_{t−1} Wᵀ, with P_t the projected inputs, and then the functions of the kind, one of
`KINDS`. The equations of each kind are in `gyral.ops.gated.reference`, which also gives second
derivatives.
"""

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels
from gyral.ops.gated import operators, reference
from gyral.ops.gated.arguments import (
    MODULES,
    FixedArguments,
    Results,
    Tensors,
    make_arguments,
    run_backward,
    run_forward,
)


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
    return kernels.unsupported_reason(MODULES, tensor)


def run(
    kind: str,
    inputs: Tensor,
    weight_ih: Tensor,
    bias: Tensor | None,
    weight_hh: Tensor,
    extra: Tensor | None,
    hidden: Tensor,
    cell_state: Tensor | None = None,
    *,
    keep: Tensor | float | None,
    lengths: Tensor | None,
    units: int,
    chunk: int = 1,
    keep_cell_state: Tensor | float | None = None,
    drop: Tensor | None = None,
    starts: Tensor | None = None,
    fresh: Tensor | None = None,
    epsilon: float = 1e-5,
    partner: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run a recurrence over inputs (T, B, X) with P_t = W_ih x_t + b, under autocast in the dtype of the parameters.

    Args:
        inputs: (T, B, X).
        weight_ih, bias: W_ih (G, X) and b (G,) or None.
        kind, weight_hh, extra, hidden, cell_state, keep, lengths, units, chunk, keep_cell_state, drop, starts, fresh,
            epsilon, partner: See `gyral.ops.gated.Arguments`.

    Returns:
        outputs (T, B, H), and hidden vector (B, H) and cell state (B, C) after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    device, dtype = inputs.device.type, weight_hh.dtype
    if torch.is_autocast_enabled(device):
        inputs, hidden, cell_state = (
            inputs.to(dtype),
            hidden.to(dtype),
            None if cell_state is None else cell_state.to(dtype),
        )
    kernels.check_dtypes(dtype, inputs, hidden, cell_state)
    fixed = FixedArguments(kind, keep, lengths, units, chunk, keep_cell_state, drop, starts, epsilon, partner)
    tensors = Tensors(inputs, weight_ih, bias, weight_hh, extra, hidden, cell_state, fresh)
    with torch.autocast(device, enabled=False):
        if torch.compiler.is_compiling():
            return operators.run(fixed, tensors)
        return _Run.apply(fixed, autograd.needs_gradient(tensors), *tensors)


def _reference_backward(ctx, *gradients):
    tensors = ctx.saved_tensors[3:]
    run_reference = reference.of(ctx.fixed)
    return None, None, *autograd.differentiate(run_reference, tensors, gradients)


class _Run(torch.autograd.Function):
    """The kernels in eager mode, with buffers of the pool."""

    @staticmethod
    def forward(ctx, fixed, needs_gradient, *tensors):
        arguments = make_arguments(fixed, Tensors(*tensors))
        results = run_forward(arguments)
        if needs_gradient:
            ctx.save_for_backward(*results[:3], *tensors)
            ctx.fixed, ctx.saved = fixed, (arguments.parts, results.cell_states, results.kept)
        else:
            buffers.release(arguments.parts, results.cell_states)
        return results[:3]

    @staticmethod
    @autograd.differentiable_by(_reference_backward)
    def backward(ctx, *gradients):
        outputs, final_hidden, final_cell_state, *given = ctx.saved_tensors
        tensors = Tensors(*given)
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        (parts, *saved), ctx.saved = ctx.saved or (None,), None
        arguments = make_arguments(ctx.fixed, tensors, parts)
        results = run_forward(arguments) if parts is None else Results(outputs, final_hidden, final_cell_state, *saved)
        found = run_backward(arguments, results, tensors, gradients, ctx.needs_input_grad[2])
        buffers.release(arguments.parts, results.cell_states)
        return None, None, *found
