"""The layer of S4D in plain torch around `channel_scan`.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor

from gyral.ops.channel_scan.scan import channel_scan
from gyral.ops.diagonal.layer import discretize
from gyral.ops.diagonal.naive import multiply
from gyral.ops.sequences import zero_beyond


def channel_state_space(
    inputs: Tensor,
    rate: Tensor,
    frequency: Tensor,
    scale: Tensor,
    readout: Tensor,
    skip: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run h_t = λ ⊙ h_{t−1} + x_t and y_t = 2 Re(Σ_p C_p B̄_p h_{t,p}) + D x_t for each channel over all steps.

    T steps, B batch size, N channels, P complex numbers in the state of a channel. A = −e^rate + i frequency,
    Δ = e^scale, λ = exp(ΔA) and B̄ = (λ − 1) / A.

    Args:
        inputs: x_t, (T, B, N).
        rate, frequency: (N, P).
        scale: (N,).
        readout: C, (2, N, P), real and imaginary parts.
        skip: D, (N,).
        h0: (B, 2NP), the state before the first step: the real parts of all channels, then the imaginary parts.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, N), y_t, zero beyond the lengths, and the state (B, 2NP) after the last step of each row.
    """
    constants = discretized(rate, frequency, scale, readout)
    outputs, final = channel_scan(inputs, *constants, h0.unflatten(-1, readout.shape), lengths=lengths, starts=starts)
    return zero_beyond(outputs + skip * inputs, lengths), final.flatten(1)


def discretized(rate: Tensor, frequency: Tensor, scale: Tensor, readout: Tensor) -> tuple[Tensor, Tensor]:
    """Return λ and 2 C ⊙ B̄, each (2, N, P)."""
    of_states = scale.repeat_interleave(rate.shape[1])
    decay, drive = discretize("zoh", -torch.exp(rate).flatten(), frequency.flatten(), of_states)
    return decay.view_as(readout), 2 * multiply(drive, readout.flatten(), is_complex=True).view_as(readout)
