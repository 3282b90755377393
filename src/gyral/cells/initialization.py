"""Initial values that several cells share."""

import math

import torch
from torch import Tensor, nn

STEP_SIZES = (1e-3, 1e-1)  # bounds of the initial step sizes of state spaces
SMALLEST_STEP = 1e-4
AUTHORS = ("default", "authors")  # values of `initialization` of the cells that have only these two


def uniform_(tensor: Tensor, bound: float) -> Tensor:
    """Fill a tensor with numbers that are uniform in ±`bound`."""
    return nn.init.uniform_(tensor, -bound, bound)


def fan_in_uniform_(*weights: Tensor | None) -> None:
    """Fill matrices (M, J), or none, with numbers that are uniform in ±1/√J, as in `torch.nn.Linear`."""
    for weight in weights:
        if weight is not None:
            uniform_(weight, weight.shape[1] ** -0.5)


def draw_wide(like: Tensor, smallest: float, largest: float, *shape: int) -> Tensor:
    """Return uniform numbers in float32 at least, on the device of a tensor and in its shape unless one is given."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return torch.empty(shape or like.shape, dtype=dtype, device=like.device).uniform_(smallest, largest)


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
    steps = draw_wide(bias, math.log(STEP_SIZES[0]), math.log(STEP_SIZES[1])).exp().clamp(min=SMALLEST_STEP)
    bias.copy_(steps + torch.log(-torch.expm1(-steps)))
