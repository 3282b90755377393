"""Layers of LRU and S5 in plain torch around `diagonal_scan`.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.diagonal.naive import multiply
from gyral.ops.diagonal.scan import diagonal_scan
from gyral.ops.sequences import zero_beyond

KINDS = ("lru", "zoh", "bilinear")


def state_space(
    inputs: Tensor,
    drive: Tensor,
    readout: Tensor,
    skip: Tensor,
    rate: Tensor,
    frequency: Tensor,
    scale: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    kind: str = "lru",
    gain: float = 1.0,
    product_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Run h_t = λ ⊙ h_{t−1} + f ⊙ (B x_t) and y_t = κ Re(C h_t) + D ⊙ x_t over all steps.

    T steps, B batch size, N units, P complex numbers in the state. A vector of complex numbers has 2P entries: the P
    real parts, then the P imaginary parts.

    Args:
        inputs: x_t, (T, B, N).
        drive: B, (2, P, N), real and imaginary parts.
        readout: C, (2, N, P), real and imaginary parts.
        skip: D, (N,).
        rate, frequency, scale: (P,), of which λ and f are functions; see `discretize`.
        h0: (B, 2P), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.
        kind: "lru", "zoh" or "bilinear".
        gain: κ.
        product_dtype: Dtype of the factors of the products with B and C; that of the inputs if None.

    Returns:
        outputs (T, B, N), y_t, zero beyond the lengths, and the state (B, 2P) after the last step of each row.
    """
    decay, factor = discretize(kind, rate, frequency, scale)
    driven = product(inputs, scaled_drive(drive, factor), product_dtype)
    hidden, final = diagonal_scan(driven, decay, h0, lengths=lengths, starts=starts, is_complex=True)
    read = product(hidden, readout_weights(readout, gain), product_dtype)
    return zero_beyond(read + skip * inputs, lengths), final


def discretize(kind: str, rate: Tensor, frequency: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Return λ (2P,) and the factors f of the inputs: (2P,), or (P,) if they are real.

    * "lru": rate ν, frequency θ and scale γ; λ = exp(−e^ν + i e^θ), f = e^γ.
    * "zoh": Λ = rate + i frequency, Δ = e^scale; λ = exp(ΔΛ), f = (λ − 1) / Λ.
    * "bilinear": the same Λ and Δ; λ = (1 + ΔΛ/2) / (1 − ΔΛ/2), f = Δ / (1 − ΔΛ/2).
    """
    if kind == "lru":
        radius, angle = torch.exp(-torch.exp(rate)), torch.exp(frequency)
        return torch.cat((radius * torch.cos(angle), radius * torch.sin(angle))), torch.exp(scale)
    step = torch.exp(scale)
    if kind == "bilinear":
        half_real, half_imag = 0.5 * step * rate, 0.5 * step * frequency
        inverse = reciprocal(1 - half_real, -half_imag)
        decay = multiply(inverse, torch.cat((1 + half_real, half_imag)), is_complex=True)
        return decay, step.repeat(2) * inverse
    growth, angle = step * rate, step * frequency
    radius, sine = torch.exp(growth), torch.sin(angle)
    decay = torch.cat((radius * torch.cos(angle), radius * sine))
    # λ − 1 without the loss of digits where λ is close to 1
    shifted = torch.expm1(growth) * torch.cos(angle) - 2 * torch.sin(0.5 * angle).square()
    return decay, multiply(torch.cat((shifted, radius * sine)), reciprocal(rate, frequency), is_complex=True)


def reciprocal(real: Tensor, imaginary: Tensor) -> Tensor:
    """Return 1 / z (2P,) of complex numbers, whose parts are (P,)."""
    squared = real.square() + imaginary.square()
    return torch.cat((real / squared, -imaginary / squared))


def scaled_drive(drive: Tensor, factor: Tensor) -> Tensor:
    """Return the weights (2P, N) that give [Re; Im] of f ⊙ (B x) for x."""
    if factor.shape[0] == drive.shape[1]:
        return (factor.unsqueeze(1) * drive).flatten(0, 1)
    return multiply(factor, drive.flatten(0, 1).T, is_complex=True).T


def readout_weights(readout: Tensor, gain: float) -> Tensor:
    """Return the weights (N, 2P) that give κ Re(C h) for [Re h; Im h]."""
    weights = torch.cat((readout[0], -readout[1]), dim=1)
    return weights if gain == 1 else gain * weights


def product(inputs: Tensor, weight: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Return the product of inputs (…, J) and a weight (M, J), of factors rounded to the dtype if there is one."""
    if dtype is None:
        return F.linear(inputs, weight)
    return F.linear(inputs.to(dtype), weight.to(dtype)).to(inputs.dtype)
