"""The function of `gyral.ops.gated_norm` in plain torch.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "sigmoid": torch.sigmoid}  # as in the kernel


def gated_norm(
    values: Tensor,
    gain: Tensor | None = None,
    gate: Tensor | None = None,
    skip: Tensor | None = None,
    weight: Tensor | None = None,
    lengths: Tensor | None = None,
    size: int = 1,
    activation: str = "silu",
    gate_first: bool = False,
    epsilon: float = 1e-5,
) -> Tensor:
    """Return y (T, B, H V), zero beyond the lengths; for one step, without T and lengths.

    Args:
        values: x (T, B, H, V).
        gain: g (P,), repeated for the H V numbers, where W divides P; None: without a normalization.
        gate: z (T, B, H V), or None: without a gate.
        skip: u (T, B, H, V), or None: zeros.
        weight: D (H,), needed with `skip`.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        size: W, the number of neighbors that are normalized together, those of one or several heads.
        activation: φ: "silu" or "sigmoid".
        gate_first: Whether the gate is applied before the normalization.
        epsilon: ε.
    """
    found = values if skip is None or weight is None else values + weight.unsqueeze(-1) * skip
    found = found.flatten(-2)
    factor = None if gate is None else ACTIVATIONS[activation](gate)
    if factor is not None and gate_first:
        found = found * factor
    if gain is not None:
        is_shared = len(gain) == size
        found = F.rms_norm(found.unflatten(-1, (-1, size)), (size,), gain if is_shared else None, epsilon).flatten(-2)
        if not is_shared:
            found = (found.unflatten(-1, (-1, len(gain))) * gain).flatten(-2)
    if factor is not None and not gate_first:
        found = found * factor
    if lengths is None:
        return found
    return found.masked_fill((torch.arange(len(found), device=found.device)[:, None] >= lengths).unsqueeze(-1), 0.0)
