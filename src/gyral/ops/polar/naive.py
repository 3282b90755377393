"""The function of `gyral.ops.polar` in plain torch.

It runs where there is no kernel, and gives the kernels' second derivatives.
"""

import math

import torch
from torch import Tensor


def polar(magnitude: Tensor, phase: Tensor) -> Tensor:
    """Return σ(u) exp(2πi σ(v)), (T, B, 2P): P real parts, then P imaginary parts.

    Args:
        magnitude: u, (T, B, P).
        phase: v, (T, B, P).
    """
    radius, angle = torch.sigmoid(magnitude), 2 * math.pi * torch.sigmoid(phase)
    return torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)), dim=-1)
