"""Random masks: zoneout of states and dropout of vectors."""

import torch
from torch import Tensor


def keep_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask shaped as `like` whose entries are 1 (keep the old value) with `probability`."""
    # faster than bernoulli_ on a CPU, where one thread draws; uniform numbers of half precision would be too coarse
    uniform = torch.empty_like(
        like, dtype=torch.promote_types(like.dtype, torch.float32), requires_grad=False
    ).uniform_()
    return uniform.lt_(probability).to(like.dtype)


def zoneout(new: Tensor, old: Tensor, keep: Tensor | float) -> Tensor:
    """Mix states (B, N) by zoneout (Krueger et al., ICLR 2017): units keep their old value at random.

    `keep` is a mask of 0 and 1 in training, the zoneout probability (its mean) at test.
    """
    return new + keep * (old - new)


def dropout_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask shaped as `like`: 0 with `probability`, else what keeps the mean at 1."""
    return keep_mask(like, 1 - probability) / (1 - probability)
