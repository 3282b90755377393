"""Random masks: zoneout of states, dropout of vectors and of weights."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from src.checks import check_boolean, check_real


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


class SequenceDropout(nn.Module):
    """Dropout on (T, B, X), in training.

    Args:
        probability: in [0, 1).
        locked: drop the same units at all steps of a sequence (Gal and Ghahramani 2016), not others at each.
    """

    def __init__(self, probability: float, locked: bool = False) -> None:
        super().__init__()
        self.probability = check_real("dropout", probability, minimum=0, below=1)
        self.locked = check_boolean("locked_dropout", locked)

    def forward(self, vectors: Tensor) -> Tensor:
        if not self.training or self.probability == 0:
            return vectors
        if self.locked:
            return vectors * dropout_mask(vectors[:1], self.probability)
        return F.dropout(vectors, self.probability)


class WeightDrop(nn.Module):
    """Dropout on the entries of a weight, in training, as a parametrization of it (DropConnect, Wan et al. 2013)."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, weight: Tensor) -> Tensor:
        return F.dropout(weight, self.probability, self.training)
