"""Dropout of sequences and of weights."""

from torch import Tensor, nn
from torch.nn import functional as F

from gyral.core.checks import check_boolean, check_real
from gyral.ops.dropout import dropout_mask


class SequenceDropout(nn.Module):
    """Dropout on sequences (T, B, X), in training.

    Args:
        probability: In [0, 1).
        locked: Whether to drop the same units at all steps of a sequence (Gal and Ghahramani 2016).
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
    """Dropout on the entries of a weight (DropConnect, Wan et al. 2013), in training; a parametrization of the weight.

    Args:
        probability: In [0, 1).
    """

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, weight: Tensor) -> Tensor:
        return F.dropout(weight, self.probability, self.training)
