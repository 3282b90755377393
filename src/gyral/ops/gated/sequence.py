"""Recurrences whose step is one product with a matrix and functions of single rows, over a whole sequence.

Cells differ in what follows P_t and the product h_{t−1} Wᵀ in a step: their kind, one of `KINDS`. `run` is
differentiable once; the reference of each kind is the `step` of its cell.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers, kernels
from gyral.ops.differentiation import first_derivative

MODULES = {"cpu": "gyral.ops.gated.cpu"}


# In the order of their numbers in recurrence.hpp.
KINDS = (
    "modrelu",  # h = modReLU(z; b), real: G = H = N
    "complex_modrelu",  # the same on N complex numbers, real parts before imaginary parts: G = H = 2N
    "goru",  # of `gyral.cells.goru`: G = 3N, rows [W_r; W_g; U]
    "on_lstm",  # of `gyral.cells.on_lstm`: G = 2D + 4N, with a cell vector
    "weinet",  # of `gyral.cells.weinet`: G = 7N, W (4N, N), the memory being the cell vector (N²)
    "lstm",  # of `gyral.cells.lstm`: G = 4N, rows [i; f; g; o], with a cell vector
    "normalized_lstm",  # the same with layer normalization
)
KEEPS_PRODUCT = ("goru",)  # whose last N columns of the product do not simply add to those of P_t


class Problem(NamedTuple):
    """T steps, B batch, H width of the hidden vector, C of the cell vector, N units, G width of the parts.

    Attributes:
        kind: one of `KINDS`.
        parts: (T, B, G), P_t. `forward` leaves there what `backward` needs, which writes gradients over it.
        weight_hh: W (R, H), R ≤ G: the product adds to the first R of the parts.
        extra: biases of modReLU (N,), gain and bias of a normalization (2, N), gains (4N) and biases (4N) of the gates,
            gain (N) and bias (N) of c one after the other for normalized_lstm (10N,), or None.
        hidden, cell: (B, H) and (B, C) before the first step; None without cell vector.
        keep: zoneout's mask of the hidden vector (T, B, H) in training, its probability at test, or None.
        lengths: (B,) int64 in [1, T], or None; as in `gyral.nn.recurrent.Recurrent`.
        units: N.
        chunk: units that share an entry of a master gate, for on_lstm.
        keep_cell: zoneout of the cell vector (T, B, C), as `keep`, for LSTMs alone.
        drop: dropout's factors of the hidden vector (B, H) where it enters the product, or None.
    """

    kind: str
    parts: Tensor
    weight_hh: Tensor
    extra: Tensor | None
    hidden: Tensor
    cell: Tensor | None
    keep: Tensor | float | None
    lengths: Tensor | None
    units: int
    chunk: int
    keep_cell: Tensor | float | None
    drop: Tensor | None


class Solution(NamedTuple):
    """Outputs (T, B, H), states after each sequence's last step, and what `backward` wants: cells, kept product."""

    outputs: Tensor
    hidden: Tensor
    cell: Tensor | None
    cells: Tensor | None
    kept: Tensor | None


class Gradients(NamedTuple):
    """Of P (T, B, G), of the part of the product that was kept (T, B, N), of the initial states and of `extra`."""

    parts: Tensor
    kept: Tensor | None
    hidden: Tensor
    cell: Tensor | None
    extra: Tensor | None


def unsupported_reason(tensor: Tensor) -> str | None:
    """Return why there are no kernels for the device and dtype of a tensor, None where there are."""
    try:
        kernels.find(MODULES, tensor)
    except kernels.KernelUnavailableError as error:
        return str(error)
    return None


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
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run a recurrence over inputs (T, B, X), P_t = W_ih x_t + b; under autocast in the parameters' own type.

    Returns:
        outputs (T, B, H), and the hidden (B, H) and cell vectors (B, C) after each sequence's last step.

    Raises:
        TypeError: inputs or states of another type than the parameters', outside autocast.
    """
    device, dtype = inputs.device.type, weight_hh.dtype
    if torch.is_autocast_enabled(device):
        inputs, hidden, cell = inputs.to(dtype), hidden.to(dtype), None if cell is None else cell.to(dtype)
    others = [t.dtype for t in (inputs, hidden, cell) if t is not None and t.dtype != dtype]
    if others:
        raise TypeError(f"inputs and states must be of the parameters' type, {dtype}, not {others[0]}")
    with torch.autocast(device, enabled=False):
        constants = kind, keep, lengths, units, chunk, keep_cell, drop
        return _Run.apply(constants, inputs, weight_ih, bias, weight_hh, extra, hidden, cell)


def _problem(constants: tuple[Any, ...], parts: Tensor | None, tensors: tuple[Any, ...]) -> Problem:
    """Return the problem; unless the parts are given, the inputs of all steps are projected in one product."""
    kind, keep, lengths, units, chunk, keep_cell, drop = constants
    inputs, weight_ih, bias, weight_hh, extra, hidden, cell = tensors
    if parts is None:
        rows = inputs.flatten(0, 1)
        parts = buffers.take(len(rows) * len(weight_ih), rows).view(len(rows), -1)
        if bias is None:
            torch.mm(rows, weight_ih.T, out=parts)
        else:
            torch.addmm(bias, rows, weight_ih.T, out=parts)
        parts = parts.view(*inputs.shape[:2], -1)
    given: Any = (weight_hh, extra, hidden, cell, keep, lengths, units, chunk, keep_cell, drop)
    given = [t.contiguous() if isinstance(t, Tensor) else t for t in given]
    return Problem(kind, parts, *given)


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, constants, *tensors):
        problem = _problem(constants, None, tensors)
        solution = kernels.find(MODULES, problem.parts).forward(problem)
        ctx.save_for_backward(*solution[:3], *tensors)
        ctx.constants, ctx.work = constants, (problem.parts, solution.cells, solution.kept)
        return solution[:3]

    @staticmethod
    @first_derivative
    def backward(ctx, grad_outputs, grad_hidden, grad_cell):
        outputs, final_hidden, final_cell, *tensors = ctx.saved_tensors
        # an earlier backward over the same graph has consumed it
        (parts, *saved), ctx.work = ctx.work or (None,), None
        problem = _problem(ctx.constants, parts, tensors)
        found = kernels.find(MODULES, problem.parts)
        solution = found.forward(problem) if parts is None else Solution(outputs, final_hidden, final_cell, *saved)
        gradients = found.backward(problem, solution, grad_outputs, grad_hidden, grad_cell)

        inputs, weight_ih, bias, weight_hh, _, hidden, _ = tensors
        parts = gradients.parts
        rows = parts.flatten(0, 1)
        # of the product: that of the parts, but for what was kept of it
        before = (hidden, solution.outputs)
        if problem.drop is not None:
            before = (hidden * problem.drop, solution.outputs * problem.drop)
        grad_weight_hh = of_weight(parts[..., : len(weight_hh)], *before)
        if gradients.kept is not None:
            grad_weight_hh[-problem.units :] = of_weight(gradients.kept, *before)
        results = (
            (rows @ weight_ih).view(inputs.shape) if ctx.needs_input_grad[1] else None,
            rows.T @ inputs.flatten(0, 1),
            None if bias is None else rows.sum(0),
            grad_weight_hh,
            gradients.extra,
            gradients.hidden,
            gradients.cell,
        )
        for used in (parts, solution.cells):
            if used is not None:
                buffers.give(used)
        return None, *results


def of_weight(slopes: Tensor, hidden: Tensor, outputs: Tensor) -> Tensor:
    """Return the gradient (R, H) of W from that of the product (T, B, R) and the hidden vectors before each step."""
    gradient = slopes[0].T @ hidden
    if len(slopes) > 1:
        gradient.addmm_(slopes[1:].flatten(0, 1).T, outputs[:-1].flatten(0, 1))
    return gradient
