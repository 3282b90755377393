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
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    T steps, B batch size, D channels, N numbers in the state of a channel. A kernel keeps only the state before every
    sixteenth step for its backward pass, and computes the others again.

    Args:
        u: (T, B, D).
        delta: Step sizes Δ, (T, B, D).
        a: A, (D, N), negative.
        b, c: B and C, (T, B, N).
        h0: (B, D, N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, D), y_t, zero beyond the lengths, and the state (B, D, N) after the last step of each row.
    """
    decay, values = coefficients(u, delta, a, b)
    hidden, final = diagonal_scan(values.flatten(2), decay.flatten(2), h0.flatten(1), lengths, starts, False)
    return (hidden.view_as(values) * c.unsqueeze(-2)).sum(-1), final.view_as(h0)


def coefficients(u: Tensor, delta: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return exp(ΔA) and Δ u B, each (…, D, N), for one step or all."""
    return torch.exp(delta.unsqueeze(-1) * a), (delta * u).unsqueeze(-1) * b.unsqueeze(-2)
