"""Recurrences whose step is one matrix product and functions of single rows, over a whole sequence.

A step computes P_t + h_{t−1} Wᵀ, with P_t the projected inputs, and then the functions that the kind of the cell, one
of `KINDS`, determines. `run` is differentiable once. The reference of each kind is the loop over the step of its cell.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers, kernels
from gyral.ops.autograd import once_differentiable

MODULES = {"cpu": "gyral.ops.gated.cpu"}

# In the order of their numbers in gated.hpp.
KINDS = (
    "modrelu",  # h = modReLU(z; b), real: G = H = N
    "complex_modrelu",  # the same for N complex numbers, real parts before imaginary parts: G = H = 2N
    "goru",  # `gyral.cells.goru`: G = 3N, rows [W_r; W_g; U]
    "on_lstm",  # `gyral.cells.on_lstm`: G = 2D + 4N, with a cell vector
    "weinet",  # `gyral.cells.weinet`: G = 7N, W (4N, N); the cell vector (N²) is the memory
    "lstm",  # `gyral.cells.lstm`: G = 4N, rows [i; f; g; o], with a cell vector
    "normalized_lstm",  # the same with layer normalization
)
# Kinds whose last N columns of the product are not simply added to those of P_t, and are kept for backward.
KEEPS_PRODUCT = ("goru",)


class Problem(NamedTuple):
    """The arguments of a kernel.

    T steps, B batch size, H width of the hidden vector, C width of the cell vector, N units, G width of the parts.

    Attributes:
        kind: One of `KINDS`.
        parts: (T, B, G), P_t. `forward` overwrites it with values for `backward`, which overwrites it with its
            gradient.
        weight_hh: W (R, H) with R ≤ G: the product is added to the first R columns of the parts.
        extra: Further parameters or None: the biases of modReLU (N,); gain and bias of a normalization (2, N); for
            normalized_lstm (10N,) the concatenation of gains (4N) and biases (4N) of the gates, gain (N) and bias (N)
            of c.
        hidden, cell: (B, H) and (B, C) before the first step; `cell` is None without a cell vector.
        keep: Zoneout of the hidden vector: a mask (T, B, H) in training, the probability in evaluation, or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        units: N.
        chunk: Number of units that share an entry of a master gate, for on_lstm.
        keep_cell: Zoneout of the cell vector (T, B, C), as `keep`, only for LSTMs.
        drop: Recurrent dropout: factors (B, H) of the hidden vector in the product, or None.
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
    """The return value of `forward`.

    Attributes:
        outputs: (T, B, H).
        hidden, cell: (B, H) and (B, C) after the last step of each sequence; `cell` is None without a cell vector.
        cells: (T, B, C), the cell vectors of all steps, for `backward`.
        kept: (T, B, N), the part of the product that `KEEPS_PRODUCT` describes, for `backward`.
    """

    outputs: Tensor
    hidden: Tensor
    cell: Tensor | None
    cells: Tensor | None
    kept: Tensor | None


class Gradients(NamedTuple):
    """Gradients of P (T, B, G), of the kept part of the product (T, B, N), of the initial state and of `extra`."""

    parts: Tensor
    kept: Tensor | None
    hidden: Tensor
    cell: Tensor | None
    extra: Tensor | None


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
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run a recurrence over inputs (T, B, X) with P_t = W_ih x_t + b, under autocast in the dtype of the parameters.

    Args:
        inputs: (T, B, X).
        weight_ih, bias: W_ih (G, X) and b (G,) or None.
        kind, weight_hh, extra, hidden, cell, keep, lengths, units, chunk, keep_cell, drop: See `Problem`.

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
    with torch.autocast(device, enabled=False):
        constants = kind, keep, lengths, units, chunk, keep_cell, drop
        return _Run.apply(constants, inputs, weight_ih, bias, weight_hh, extra, hidden, cell)


def _problem(constants: tuple[Any, ...], parts: Tensor | None, tensors: tuple[Any, ...]) -> Problem:
    """Return the problem; if `parts` is None, project the inputs of all steps in one product."""
    kind, keep, lengths, units, chunk, keep_cell, drop = constants
    inputs, weight_ih, bias, weight_hh, extra, hidden, cell = tensors
    if parts is None:
        rows = inputs.flatten(0, 1)
        parts = buffers.acquire(len(rows) * len(weight_ih), rows).view(len(rows), -1)
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
        ctx.constants, ctx.saved = constants, (problem.parts, solution.cells, solution.kept)
        return solution[:3]

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_outputs, grad_hidden, grad_cell):
        outputs, final_hidden, final_cell, *tensors = ctx.saved_tensors
        # backward overwrites the saved values: a second backward over the same graph runs forward again
        (parts, *saved), ctx.saved = ctx.saved or (None,), None
        problem = _problem(ctx.constants, parts, tensors)
        found = kernels.find(MODULES, problem.parts)
        solution = found.forward(problem) if parts is None else Solution(outputs, final_hidden, final_cell, *saved)
        gradients = found.backward(problem, solution, grad_outputs, grad_hidden, grad_cell)

        inputs, weight_ih, bias, weight_hh, _, hidden, _ = tensors
        parts = gradients.parts
        rows = parts.flatten(0, 1)
        # the gradient of the product is that of the parts, except for the part of it that was kept
        inputs_hh = (hidden, solution.outputs)
        if problem.drop is not None:
            inputs_hh = (hidden * problem.drop, solution.outputs * problem.drop)
        grad_weight_hh = weight_gradient(parts[..., : len(weight_hh)], *inputs_hh)
        if gradients.kept is not None:
            grad_weight_hh[-problem.units :] = weight_gradient(gradients.kept, *inputs_hh)
        results = (
            (rows @ weight_ih).view(inputs.shape) if ctx.needs_input_grad[1] else None,
            rows.T @ inputs.flatten(0, 1),
            None if bias is None else rows.sum(0),
            grad_weight_hh,
            gradients.extra,
            gradients.hidden,
            gradients.cell,
        )
        for buffer in (parts, solution.cells):
            if buffer is not None:
                buffers.release(buffer)
        return None, *results


def weight_gradient(grad_products: Tensor, hidden: Tensor, outputs: Tensor) -> Tensor:
    """Return the gradient (R, H) of W, given that of the products (T, B, R), the initial hidden vector and outputs."""
    gradient = grad_products[0].T @ hidden
    if len(grad_products) > 1:
        gradient.addmm_(grad_products[1:].flatten(0, 1).T, outputs[:-1].flatten(0, 1))
    return gradient
