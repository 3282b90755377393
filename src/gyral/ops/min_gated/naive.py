"""The recurrences of `gyral.ops.min_gated` in plain torch, as a diagonal scan.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import diagonal
from gyral.ops.diagonal.naive import SHARPNESS, SMALLEST, diagonal_scan
from gyral.ops.rum.naive import ACTIVATIONS
from gyral.ops.sequences import mark_first

NEVER = -1e4  # log a of RG-LRU whose exponential is 0; minus infinity would make the gradient of a² NaN


def min_gated(
    projected: Tensor, h0: Tensor, lengths: Tensor | None = None, starts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    Args:
        projected: (T, B, 2N), rows [c; k] of a minGRU, or (T, B, 3N), rows [c; f; i] of a minLSTM.
        h0: (B, N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and the state (B, N) after the last step of each row.
    """
    decay, values = coefficients(projected, h0.shape[1])
    return diagonal_scan(values, decay, h0, lengths, starts, False)


def coefficients(projected: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return 1 − z and z ⊙ g(c), each (…, N), for the projected inputs (…, 2N) or (…, 3N)."""
    candidate, *gates = projected.split(size, dim=-1)
    gate = gates[0] if len(gates) == 1 else F.logsigmoid(gates[1]) - F.logsigmoid(gates[0])
    positive = torch.where(candidate >= 0, candidate + 0.5, torch.sigmoid(candidate))
    return torch.sigmoid(-gate), torch.sigmoid(gate) * positive


def rg_lru(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor,
    decay: Tensor,
    h0: Tensor,
    fresh: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    product_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the recurrence over all steps; see `gyral.cells.rg_lru.RGLRUCell` for the equations.

    Args:
        inputs: x_t, (T, B, N).
        weight: (2, H, b, b), the blocks of W_a and W_x; H b ≥ N.
        bias: (2, N), b_a and b_x.
        decay: Λ, (N,).
        h0: (B, N), the state before the first step.
        fresh: (B,) int64, 1 where the first step is the first of a sequence, else 0.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True begins a new sequence before the step.
        product_dtype: Dtype of the factors of the products with the weights; that of the inputs if None.

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, the state (B, N) after the last step of each row, and `fresh`
        of the step after it, which is 0.
    """
    products = gate_products(inputs, weight, product_dtype)
    is_first = mark_first(starts, fresh > 0, inputs.shape[0])
    values = rg_lru_coefficients(*rg_lru_gates(inputs, products, bias, decay), is_first)
    outputs, final = diagonal.diagonal_scan(values[1], values[0], h0, lengths=lengths, starts=starts)
    return outputs, final, torch.zeros_like(fresh)


def gate_products(inputs: Tensor, weight: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return W_a x and W_x x (2, …, N) for inputs x (…, N) and their blocks (2, H, b, b)."""
    size, (_, heads, block, _) = inputs.shape[-1], weight.shape
    missing = heads * block - size
    padded = F.pad(inputs, (0, missing)) if missing else inputs
    factors = padded.unflatten(-1, (heads, block)), weight
    if dtype is not None:
        factors = factors[0].to(dtype), weight.to(dtype)
    products = torch.einsum("...hi,ghij->g...hj", *factors).flatten(-2)[..., :size]
    return products if dtype is None else products.to(inputs.dtype)


def rg_lru_gates(inputs: Tensor, products: Tensor, bias: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """Return log a_t and i_t ⊙ x_t, each (…, N), given the products (2, …, N); see `rg_lru` for the other arguments."""
    recurrence, write = torch.sigmoid(products + bias.view(2, *[1] * (inputs.dim() - 1), -1))
    return -SHARPNESS * recurrence * F.softplus(decay), write * inputs


def rg_lru_coefficients(log_decay: Tensor, gated: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
    """Return a_t and b_t (…, N), with a_t = 0 and b_t = i_t ⊙ x_t where `is_first` (…) is True."""
    log_decay = log_decay.masked_fill(is_first.unsqueeze(-1), NEVER)
    return torch.exp(log_decay), clipped_sqrt(-torch.expm1(2 * log_decay)) * gated


def clipped_sqrt(values: Tensor) -> Tensor:
    """Return the square root of numbers ≥ 0, with the gradient 1 / √max(4x, 10⁻⁶)."""
    bound = SMALLEST / 4
    raised = values + (values.clamp(min=bound) - values).detach()
    root = torch.sqrt(raised)
    return root + (torch.sqrt(values) - root).detach()


def blend(
    inputs: Tensor,
    gate: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    activation: str = "relu",
) -> tuple[Tensor, Tensor]:
    """Run h_t = σ(u_t) ⊙ h_{t−1} + (1 − σ(u_t)) ⊙ f(c_t) over all steps.

    Args:
        inputs: c_t, (T, B, N).
        gate: u_t, (T, B, N).
        h0: (B, N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.
        activation: f: "relu", "tanh", "sigmoid" or "softsign".

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and the state (B, N) after the last step of each row.
    """
    candidate, keep = ACTIVATIONS[activation](inputs), torch.sigmoid(gate)
    return diagonal_scan((1 - keep) * candidate, keep, h0, lengths, starts, False)
