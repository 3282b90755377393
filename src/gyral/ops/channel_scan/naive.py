"""The scan of `gyral.ops.channel_scan` in plain torch, as a diagonal scan of all states.

The kernels compute the same without keeping the states. This code runs where there is no kernel, and gives the kernels'
second derivatives.
"""

import torch
from torch import Tensor

from gyral.ops.diagonal.naive import diagonal_scan


def channel_scan(
    x: Tensor, decay: Tensor, readout: Tensor, h0: Tensor, lengths: Tensor | None, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return outputs (T, B, N) and final state (B, 2, N, P); see `gyral.ops.channel_scan.channel_scan`."""
    real = x.unsqueeze(-1).expand(*x.shape, decay.shape[2])
    values = torch.stack((real, torch.zeros_like(real)), dim=2)  # (T, B, 2, N, P)
    hidden, final = diagonal_scan(values.flatten(2), decay.flatten(), h0.flatten(1), lengths, starts, True)
    return read(hidden.view_as(values), readout), final.view_as(h0)


def read(hidden: Tensor, readout: Tensor) -> Tensor:
    """Return Σ_p Re(w h), (…, N), for the states (…, 2, N, P) and w (2, N, P)."""
    product: Tensor = hidden * readout
    return product.select(-3, 0).sum(-1) - product.select(-3, 1).sum(-1)
