"""Random masks of dropout and zoneout."""

import torch
from torch import Tensor


def bernoulli_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask with the shape, dtype and device of `like` whose entries are 1 with `probability`, else 0."""
    # faster than bernoulli_, which runs in one thread on a CPU; uniform numbers in half precision are too coarse
    uniform = torch.empty_like(
        like, dtype=torch.promote_types(like.dtype, torch.float32), requires_grad=False
    ).uniform_()
    return uniform.lt_(probability).to(like.dtype)


def dropout_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask with the shape, dtype and device of `like`: 0 with `probability`, else 1 / (1 − probability)."""
    return bernoulli_mask(like, 1 - probability) / (1 - probability)
