"""The function of `gyral.ops.gated_heads` in plain torch.

It runs where there is no kernel, and gives the kernel's second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.normalized_heads import normalized_heads
from gyral.ops.sequences import zero_beyond


def gated_heads(
    outputs: Tensor,
    least: Tensor,
    gate: Tensor,
    gain: Tensor,
    skip: Tensor | None,
    skipped: Tensor | None,
    epsilon: float,
    silu: bool,
    lengths: Tensor | None = None,
) -> Tensor:
    """Return y (T, B, H V).

    Args:
        outputs: (T, B, H, V + 1), [c; n].
        least: (T, B, H), e^{−m}.
        gate: (T, B, H V), z.
        gain: (H V,), g.
        skip, skipped: (H V,), s, and (T, B, H V), x; or both None, which stands for zeros.
        epsilon: ε.
        silu: Whether the gates pass SiLU; else they pass the sigmoid function.
        lengths: (B,) int64 in [1, T], or None. The results are zero beyond them.
    """
    found = read(normalized_heads(outputs, least, epsilon), gate, gain, skip, skipped, silu)
    return zero_beyond(found, lengths)


def read(normal: Tensor, gate: Tensor, gain: Tensor, skip: Tensor | None, skipped: Tensor | None, silu: bool) -> Tensor:
    """Return y (…, H V) for normalized outputs (…, H, V)."""
    normal = normal.flatten(-2)
    values = normal * gain if skip is None or skipped is None else torch.addcmul(skip * skipped, normal, gain)
    return values * (F.silu(gate) if silu else torch.sigmoid(gate))
