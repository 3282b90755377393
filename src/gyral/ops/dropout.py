"""Dropout and zoneout of hidden states, and their random masks."""

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


def zoneout(new: Tensor, old: Tensor, keep: Tensor | float) -> Tensor:
    """Return new + keep ⊙ (old − new): units keep their old value at random (Krueger et al., ICLR 2017).

    Cells apply it at the end of a step, in `gyral.cells.base.RecurrentCell.apply_zoneout`.

    Args:
        new, old: The vector (B, N) after and before the step.
        keep: In training a mask (B, N) of 0 and 1; in evaluation the zoneout probability, the mean of the mask.
    """
    return new + keep * (old - new)
