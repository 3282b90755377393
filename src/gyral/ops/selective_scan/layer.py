"""The recurrence of Mamba with what surrounds it, in plain torch around `selective_scan`.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.selective_scan.scan import selective_scan
from gyral.ops.sequences import zero_beyond


def selective_state_space(
    u: Tensor,
    gate: Tensor,
    step: Tensor,
    matrices: Tensor,
    rate: Tensor,
    bias: Tensor,
    skip: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run y_t = (C_tᵀ h_t + D ⊙ u_t) ⊙ SiLU(z_t) over all steps, with the recurrence of `selective_scan`.

    T steps, B batch size, N channels, S numbers in the state of a channel. Δ = softplus(step + bias), A = −e^rate.

    Args:
        u: (T, B, N).
        gate: z, (T, B, N).
        step: Step sizes before bias and softplus, (T, B, N).
        matrices: B_t, then C_t, (T, B, 2S).
        rate: (N, S).
        bias, skip: The bias of the step sizes and D, (N,).
        h0: (B, N, S), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, N), y_t, zero beyond the lengths, and the state (B, N, S) after the last step of each row.
    """
    b, c = matrices.chunk(2, dim=-1)
    outputs, final = selective_scan(u, step_sizes(step, bias), rates(rate), b, c, h0, lengths=lengths, starts=starts)
    return zero_beyond((outputs + skip * u) * F.silu(gate), lengths), final


def step_sizes(step: Tensor, bias: Tensor) -> Tensor:
    """Return Δ (…, N)."""
    return F.softplus(step + bias)


def rates(rate: Tensor) -> Tensor:
    """Return A (N, S)."""
    return -torch.exp(rate)
