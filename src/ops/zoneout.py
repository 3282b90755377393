"""Zoneout (Krueger et al., ICLR 2017): units that keep their old value at random."""

import torch
from torch import Tensor


def keep_mask(like: Tensor, probability: float) -> Tensor:
    """Draw a mask shaped as `like` whose entries are 1 (keep the old value) with `probability`."""
    return torch.empty_like(like, requires_grad=False).bernoulli_(probability)


def zoneout(new: Tensor, old: Tensor, keep: Tensor | float) -> Tensor:
    """Mix states (B, N): `keep` is a mask of 0 and 1 in training, the zoneout probability (its mean) at test."""
    return new + keep * (old - new)
