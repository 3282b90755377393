"""The function of `gyral.ops.normalized_heads` in plain torch.

It runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-6  # added to the denominator


def normalized_heads(outputs: Tensor, least: Tensor, epsilon: float) -> Tensor:
    """Return y (T, B, H, V).

    Args:
        outputs: (T, B, H, V + 1), [c; n].
        least: (T, B, H), e^{−m}.
        epsilon: ε.
    """
    values = divide(outputs, least)
    return F.layer_norm(values, values.shape[-1:], eps=epsilon)


def divide(outputs: Tensor, least: Tensor) -> Tensor:
    """Return h (…, V) for [c; n] (…, V + 1) and e^{−m} (…)."""
    values, norm = outputs[..., :-1], outputs[..., -1]
    return values / (torch.maximum(norm.abs(), least) + EPSILON).unsqueeze(-1)
