"""The scan of `gyral.ops.selective_scan` in plain torch, as a diagonal scan of all states.

The kernels compute the same without keeping the states. This code runs where there is no kernel, and gives the kernels'
second derivatives.
"""

import torch
from torch import Tensor

from gyral.ops.diagonal.naive import diagonal_scan


def selective_scan(
    u: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return outputs (T, B, D) and final state (B, D, N); see `gyral.ops.selective_scan.selective_scan`."""
    decay, values = coefficients(u, delta, a, b)
    hidden, final = diagonal_scan(values.flatten(2), decay.flatten(2), h0.flatten(1), lengths, starts, False)
    return (hidden.view_as(values) * c.unsqueeze(-2)).sum(-1), final.view_as(h0)


def coefficients(u: Tensor, delta: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(ΔA) and Δ u B, each (…, D, N), for one step or all."""
    return torch.exp(delta.unsqueeze(-1) * a), (delta * u).unsqueeze(-1) * b.unsqueeze(-2)
