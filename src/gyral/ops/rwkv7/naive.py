"""The function of `gyral.ops.rwkv7` in plain torch, with the recurrence as two micro-steps of `gyral.ops.delta`.

It runs where there is no kernel, and gives the kernel's second derivatives.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.delta import delta_scan
from gyral.ops.sequences import zero_beyond

EPSILON = 64e-5  # of the normalization of the outputs


class Given(NamedTuple):
    """Arguments of `gyral.ops.delta.delta_scan`, without n_t and the rates of erasing and writing."""

    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    erase: Tensor


def rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    gate: Tensor,
    k_k: Tensor,
    k_a: Tensor,
    r_k: Tensor,
    gain: Tensor,
    bias: Tensor,
    s0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    Args:
        r, w, k, v, a, gate: (T, B, H V), with w and a before the sigmoid function, and g as it is.
        k_k, k_a: (H V,).
        r_k: (H, V).
        gain, bias: (H V,), of the normalization in each head.
        s0: (B, H, V, V), the memory before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: its memory counts as zero.

    Returns:
        y (T, B, H V), zero beyond the lengths, and the memory (B, H, V, V) after the last step of each row.
    """
    rate = torch.sigmoid(a)
    written = written_keys(k, rate, k_a)
    given = to_delta(r, w, k, v, rate, k_k, written, r_k.shape)
    found, memory = delta_scan(given.q, given.k, given.v, s0, given.decay, given.erase, None, lengths, starts)
    return zero_beyond(read(found, r, written, v, gate, r_k, gain, bias), lengths), memory


def normalized(vectors: Tensor) -> Tensor:
    """Return x / max(|x|, ε) for vectors x (…, V), with ε = 1e-12; second derivatives are finite at 0, too."""
    is_zero = (vectors == 0).all(dim=-1, keepdim=True)
    size = torch.linalg.vector_norm(vectors.masked_fill(is_zero, 1), dim=-1, keepdim=True)
    return vectors / size.masked_fill(is_zero, 0).clamp(min=1e-12)


def written_keys(k: Tensor, rate: Tensor, k_a: Tensor) -> Tensor:
    """Return k̄ (…, H V) for rates α."""
    return torch.lerp(k, k * rate, k_a)


def to_delta(
    r: Tensor, w: Tensor, k: Tensor, v: Tensor, rate: Tensor, k_k: Tensor, written: Tensor, heads: torch.Size
) -> Given:
    """Return two micro-steps (…, 2, H, V): the first erases, the second writes. The operator reads after the decay."""
    decay = -math.exp(-0.5) * torch.sigmoid(w)
    parts = r, written, v, decay, rate, k * k_k
    r, written, v, decay, rate, erased = (part.unflatten(-1, heads) for part in parts)
    unit = normalized(erased)
    zeros = torch.zeros_like(unit)
    return Given(
        q=r,
        k=torch.stack((rate * unit, written), dim=-3),
        v=torch.stack((zeros, v), dim=-3),
        decay=decay,
        erase=torch.stack((unit * torch.exp(-decay), zeros), dim=-3),
    )


def read(
    outputs: Tensor, r: Tensor, written: Tensor, v: Tensor, gate: Tensor, r_k: Tensor, gain: Tensor, bias: Tensor
) -> Tensor:
    """Return y (…, H V) for Sᵀ r (…, H, V)."""
    r, written, v = (part.unflatten(-1, r_k.shape) for part in (r, written, v))
    normal = F.layer_norm(outputs, outputs.shape[-1:], eps=EPSILON).flatten(-2)
    normal = torch.addcmul(bias, normal, gain).unflatten(-1, r_k.shape)
    current = (r * written * r_k).sum(-1, keepdim=True)
    return torch.addcmul(normal, current, v).flatten(-2) * gate
