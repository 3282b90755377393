"""The function of `gyral.ops.block_projections` in plain torch.

It runs where there is no kernel, and gives the kernel's second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.sequences import zero_beyond


def block_projections(
    convolved: Tensor,
    values: Tensor,
    weight: Tensor,
    weight_gates: Tensor,
    bias_gates: Tensor,
    heads: int,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return q and k (T, B, C), [v; 1] (T, B, H, C / H + 1) and the logits (T, B, G).

    Args:
        convolved: (T, B, C), c, or (B, C) for one step, as all others.
        values: (T, B, C), u.
        weight: (3, ⌈C / b⌉, b, b), the blocks of W_q, W_k and W_v. If b does not divide C, the last are not full.
        weight_gates: (G, 3 C), W_g.
        bias_gates: (G,), b_g.
        heads: H, a divisor of C. The values of each head have a one behind them.
        lengths: (B,) int64 in [1, T], or None. The results are zero beyond them.
    """
    of_keys, of_values = weight.split([2, 1])
    q, k = _multiply(convolved, of_keys).unbind(-2)
    v = _multiply(values, of_values).squeeze(-2)
    gates = F.linear(torch.cat((q, k, v), dim=-1), weight_gates, bias_gates)
    v = v.unflatten(-1, (heads, -1))
    v = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
    if lengths is None:
        return q, k, v, gates
    q, k, v, gates = (zero_beyond(each, lengths) for each in (q, k, v.flatten(-2), gates))
    return q, k, v.unflatten(-1, (heads, -1)), gates


def _multiply(values: Tensor, weight: Tensor) -> Tensor:
    """Return products (…, M, C) of values (…, C) with M block-diagonal matrices (M, ⌈C / b⌉, b, b)."""
    channels, size = values.shape[-1], weight.shape[-1]
    missing = weight.shape[1] * size - channels
    blocks = (F.pad(values, (0, missing)) if missing else values).unflatten(-1, (-1, size))
    products = torch.einsum("...ni,mnoi->...mno", blocks, weight).flatten(-2)
    return products[..., :channels] if missing else products
