"""Recurrences whose step is one matrix product and functions of single rows, over a whole sequence.

A step computes P_t + h_{t−1} Wᵀ, with P_t the projected inputs, and then the functions that the kind of the cell, one
of `KINDS`, determines. The equations of each kind are in `gyral.ops.gated.reference`, which also gives second
derivatives.
"""

import torch
from torch import Tensor

from gyral.ops import autograd, buffers, kernels
from gyral.ops.gated import operators, reference
from gyral.ops.gated.problem import MODULES, Constants, Solution, Tensors, differentiate, make_problem, solve


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
    cell: Tensor | None = None,
    *,
    keep: Tensor | float | None,
    lengths: Tensor | None,
    units: int,
    chunk: int = 1,
    keep_cell: Tensor | float | None = None,
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
        kind, weight_hh, extra, hidden, cell, keep, lengths, units, chunk, keep_cell, drop, starts, fresh, epsilon,
            partner: See `gyral.ops.gated.Problem`.

    Returns:
        outputs (T, B, H), and hidden vector (B, H) and cell vector (B, C) after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    device, dtype = inputs.device.type, weight_hh.dtype
    if torch.is_autocast_enabled(device):
        inputs, hidden, cell = inputs.to(dtype), hidden.to(dtype), None if cell is None else cell.to(dtype)
    kernels.check_dtypes(dtype, inputs, hidden, cell)
    constants = Constants(kind, keep, lengths, units, chunk, keep_cell, drop, starts, epsilon, partner)
    tensors = Tensors(inputs, weight_ih, bias, weight_hh, extra, hidden, cell, fresh)
    with torch.autocast(device, enabled=False):
        if torch.compiler.is_compiling():
            return operators.run(constants, tensors)
        needs_gradient = autograd.needs_gradient(tensors)
        return _Run.apply(constants, needs_gradient, *tensors)


def _reference_backward(ctx, *gradients):
    tensors = ctx.saved_tensors[3:]
    run_reference = reference.of(ctx.constants)
    return None, None, *autograd.differentiate(run_reference, tensors, gradients)


class _Run(torch.autograd.Function):
    """The kernels in eager mode, with buffers of the pool."""

    @staticmethod
    def forward(ctx, constants, needs_gradient, *tensors):
        problem = make_problem(constants, Tensors(*tensors))
        solution = solve(problem)
        if needs_gradient:
            ctx.save_for_backward(*solution[:3], *tensors)
            ctx.constants, ctx.saved = constants, (problem.parts, solution.cells, solution.kept)
        else:
            _release(problem.parts, solution.cells)
        return solution[:3]

    @staticmethod
    @autograd.differentiable_by(_reference_backward)
    def backward(ctx, *gradients):
        outputs, final_hidden, final_cell, *given = ctx.saved_tensors
        tensors = Tensors(*given)
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        (parts, *saved), ctx.saved = ctx.saved or (None,), None
        problem = make_problem(ctx.constants, tensors, parts)
        solution = solve(problem) if parts is None else Solution(outputs, final_hidden, final_cell, *saved)
        results = differentiate(problem, solution, tensors, gradients, ctx.needs_input_grad[2])
        _release(problem.parts, solution.cells)
        return None, None, *results


def _release(*pooled: Tensor | None) -> None:
    for buffer in pooled:
        if buffer is not None:
            buffers.release(buffer)
