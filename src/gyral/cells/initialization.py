"""Initial values that several cells share."""

import torch
from torch import Tensor, nn

AUTHORS = ("default", "authors")  # values of `initialization` of the cells that have only these two


def orthogonal_(weight: Tensor) -> Tensor:
    """Fill a matrix with orthogonal rows or columns of norm 1, whichever are fewer, as `torch.nn.init.orthogonal_`.

    That function does not support bfloat16 and float16. For them the values are drawn in float32.
    """
    dtype = torch.promote_types(weight.dtype, torch.float32)
    return weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape, dtype=dtype, device=weight.device)))
