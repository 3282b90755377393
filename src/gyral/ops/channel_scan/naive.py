"""The scan of `gyral.ops.channel_scan` in plain torch, as a diagonal scan of all states.

The kernels compute the same without keeping the states. This code runs where there is no kernel, and gives the kernels'
second derivatives.
"""

import torch
from torch import Tensor

from gyral.ops.diagonal.naive import diagonal_scan


def channel_scan(
    x: Tensor,
    decay: Tensor,
    readout: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    T steps, B batch size, N channels, P complex numbers in the state of a channel. Complex numbers are pairs of real
    and imaginary part, in a dimension of size 2. A kernel keeps the state before every 32nd step for its backward pass,
    and computes the others again.

    Args:
        x: (T, B, N).
        decay: λ, (2, N, P).
        readout: w, (2, N, P).
        h0: (B, 2, N, P), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, N), y_t, zero beyond the lengths, and the state (B, 2, N, P) after the last step of each row.
    """
    real = x.unsqueeze(-1).expand(*x.shape, decay.shape[2])
    values = torch.stack((real, torch.zeros_like(real)), dim=2)  # (T, B, 2, N, P)
    hidden, final = diagonal_scan(values.flatten(2), decay.flatten(), h0.flatten(1), lengths, starts, True)
    return read(hidden.view_as(values), readout), final.view_as(h0)


def read(hidden: Tensor, readout: Tensor) -> Tensor:
    """Return Σ_p Re(w h), (…, N), for the states (…, 2, N, P) and w (2, N, P)."""
    product: Tensor = hidden * readout
    return product.select(-3, 0).sum(-1) - product.select(-3, 1).sum(-1)
