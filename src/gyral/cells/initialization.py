"""Initial values that several cells share."""

import math

import torch
from torch import Tensor, nn

STEP_SIZES = (1e-3, 1e-1)  # bounds of the initial step size of state spaces
SMALLEST_STEP = 1e-4
AUTHORS = ("default", "authors")  # values of `initialization` of the cells that have only these two


def orthogonal_(weight: Tensor) -> Tensor:
    """Fill a matrix with orthogonal rows or columns of norm 1, whichever are fewer, as `torch.nn.init.orthogonal_`.

    That function does not support bfloat16 and float16. For them the values are drawn in float32.
    """
    dtype = torch.promote_types(weight.dtype, torch.float32)
    return weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape, dtype=dtype, device=weight.device)))


@torch.no_grad()
def draw_step_sizes_(bias: Tensor) -> None:
    """Fill a tensor with the inverse of softplus at step sizes whose logarithm is uniform in [log 0.001, log 0.1].

    These are the initial biases of Mamba (Gu and Dao 2023), and of layers after it.
    """
    dtype = torch.promote_types(bias.dtype, torch.float32)
    logarithms = torch.empty_like(bias, dtype=dtype).uniform_(*map(math.log, STEP_SIZES))
    steps = logarithms.exp().clamp(min=SMALLEST_STEP)
    bias.copy_(steps + torch.log(-torch.expm1(-steps)))
