"""The function of `gyral.ops.token_shift` in plain torch.

It runs where there is no kernel, and gives the kernel's second derivatives.
"""

import torch
from torch import Tensor

from gyral.ops.sequences import shift

MIXES = 6


def token_shift(
    values: Tensor, mix: Tensor, before: Tensor, lengths: Tensor | None = None, starts: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the six mixes (T, B, C), zero beyond the lengths.

    Args:
        values: (T, B, C), x.
        mix: (6, C), μ.
        before: (B, C), the values before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: the value before it counts as zero.
    """
    previous = shift(before, values)
    if starts is not None:
        previous = previous.masked_fill(starts.unsqueeze(-1), 0.0)
    found = mixed(values, mix, previous)
    if lengths is not None:
        ended = torch.arange(len(values), device=values.device).unsqueeze(1) >= lengths
        found = found.masked_fill(ended.unsqueeze(2), 0.0)
    r, w, k, v, a, g = found.unbind(0)
    return r, w, k, v, a, g


def mixed(values: Tensor, mix: Tensor, previous: Tensor) -> Tensor:
    """Return the mixes (6, …, C) of values and previous ones (…, C)."""
    return torch.addcmul(values, mix.view(len(mix), *[1] * (values.dim() - 1), -1), previous - values)
