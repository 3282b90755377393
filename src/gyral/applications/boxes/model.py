"""Embeddings of concepts as boxes or partially ordered points, with the probability of one concept given another."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.core.checks import check_integer, check_real

SMALLEST = 1e-12  # side of an intersection of hard boxes whose logarithm is computed; the gradient is zero below it
DISJOINT = -50.0  # logarithm of the conditional probability of disjoint hard boxes, plus the surrogate in (-1, 1)
SMALL = -15.0  # argument below which softplus is computed by a series
FRACTION_TERMS = 40  # terms of the continued fraction of the Mills ratio; exact in float64 for arguments above 3
TAIL = -3.0  # argument below which the Gaussian side is computed by the continued fraction


class ConceptModel(nn.Module, ABC):
    """Embeds concepts and gives the probability of one, given another.

    Args:
        concepts: n, number of concepts.
        dimension: d, size of an embedding.

    Raises:
        OptionError: a size is below 1.
    """

    def __init__(self, concepts: int, *, dimension: int) -> None:
        super().__init__()
        self.concepts = check_integer("concepts", concepts)
        self.dimension = check_integer("dimension", dimension)

    @abstractmethod
    def forward(self, pairs: Tensor) -> Tensor:
        """Return log P(a | b) of pairs of concepts.

        Args:
            pairs: (…, 2) integers, a and b. For hypernyms a is the general and b the specific concept.

        Returns:
            (…,), at most 0 up to rounding.
        """


class Box(NamedTuple):
    """Axis-aligned boxes: two corners, both (…, d). A box is empty where a maximum is below its minimum."""

    minimum: Tensor
    maximum: Tensor

    @property
    def side(self) -> Tensor:
        """(…, d); negative where boxes that were intersected do not overlap."""
        return self.maximum - self.minimum


def intersect(first: Box, second: Box) -> Box:
    """Return the intersection, from the maximum of the minima to the minimum of the maxima."""
    return Box(torch.maximum(first.minimum, second.minimum), torch.minimum(first.maximum, second.maximum))


def join(first: Box, second: Box) -> Box:
    """Return the smallest boxes that contain both."""
    return Box(torch.minimum(first.minimum, second.minimum), torch.maximum(first.maximum, second.maximum))


class BoxModel(ConceptModel):
    """Concepts are boxes, and probabilities are volumes: P(a | b) = vol(a ∩ b) / vol(b).

    A box has the trained parameters `minimum`, its lower corner, and `log_side`, the logarithms of its sides. Lower
    corners are uniform in [0, spread) at first, and sides are `side` times the exponential of normal deviates with
    standard deviation 0.1.

    Args:
        concepts, dimension: see `ConceptModel`.
        spread: range of the initial lower corners in each dimension.
        side: side of the initial boxes.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(self, concepts: int, *, dimension: int, spread: float = 1.0, side: float = 1.0) -> None:
        super().__init__(concepts, dimension=dimension)
        shape = (self.concepts, self.dimension)
        self.minimum = nn.Parameter(torch.rand(shape) * check_real("spread", spread, minimum=0))
        self.log_side = nn.Parameter(math.log(check_real("side", side, above=0)) + 0.1 * torch.randn(shape))

    def boxes(self, concepts: Tensor) -> Box:
        """Return the boxes of concepts (…,)."""
        minimum = self.minimum[concepts]
        return Box(minimum, minimum + self.log_side[concepts].exp())

    def universe(self) -> Box:
        """Return the smallest box that contains the boxes of all concepts, whose corners are (d,)."""
        return Box(self.minimum.amin(dim=0), (self.minimum + self.log_side.exp()).amax(dim=0))

    @abstractmethod
    def log_sides(self, box: Box) -> Tensor:
        """Return the logarithms of the factors of the volume (…, d), one for each side."""

    def log_volume(self, box: Box) -> Tensor:
        """Return the logarithms of volumes (…,)."""
        return self.log_sides(box).sum(dim=-1)

    def log_probability(self, concepts: Tensor) -> Tensor:
        """Return log P(a) of concepts (…,): volumes relative to the volume of the box around all boxes."""
        return self.log_volume(self.boxes(concepts)) - self.log_volume(self.universe())

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = (self.boxes(concepts) for concepts in pairs.unbind(dim=-1))
        # the difference of two volumes would lose digits
        return (self.log_sides(intersect(first, second)) - self.log_sides(second)).sum(dim=-1)


class HardBoxes(BoxModel):
    """Boxes with hard edges (Vilnis et al. 2018, arXiv:1805.06627): the side of an intersection is max(0, side).

    The probability of disjoint boxes is 0 and has no gradient. As in that paper, a lower bound replaces the volume of
    the intersection: vol(a) + vol(b) − vol(a ∨ b), where a ∨ b is the smallest box that contains both. Here the bound
    is relative to vol(a ∨ b) and is added to a large negative number.
    """

    def log_sides(self, box: Box) -> Tensor:
        return box.side.clamp(min=SMALLEST).log()

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = (self.boxes(concepts) for concepts in pairs.unbind(dim=-1))
        intersection = intersect(first, second)
        sides = self.log_sides(join(first, second))
        shares = ((self.log_sides(each) - sides).sum(dim=-1).exp() for each in (first, second))
        bound = sum(shares) - 1
        conditional = (self.log_sides(intersection) - self.log_sides(second)).sum(dim=-1)
        return torch.where((intersection.side > 0).all(dim=-1), conditional, DISJOINT + bound)


class SmoothedBoxes(BoxModel):
    """Boxes with smooth edges (Li et al., ICLR 2019): softplus(side) in place of max(0, side).

        vol = Π_i ρ softplus((M_i − m_i) / ρ)

    Disjoint boxes have a common volume and therefore a gradient. For ρ → 0 the volume is the volume of the hard box.

    Args:
        concepts, dimension, spread, side: see `BoxModel`.
        temperature: ρ.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(self, concepts: int, *, temperature: float = 1.0, **options: float) -> None:
        super().__init__(concepts, **options)  # type: ignore[arg-type]
        self.temperature = check_real("temperature", temperature, above=0)

    def log_sides(self, box: Box) -> Tensor:
        return log_softplus(box.side / self.temperature) + math.log(self.temperature)


class GaussianBoxes(SmoothedBoxes):
    """Boxes whose edges are smoothed by a normal distribution with standard deviation ρ.

        vol = Π_i ρ g((M_i − m_i) / ρ),  g(z) = z Φ(z) + φ(z)

    g is the integral of the normal distribution function Φ; softplus, the integral of the logistic function,
    approximates it.
    """

    def log_sides(self, box: Box) -> Tensor:
        return log_gaussian_side(box.side / self.temperature) + math.log(self.temperature)


class OrderEmbeddings(ConceptModel):
    """Points in the positive orthant (Vendrov et al., ICLR 2016, arXiv:1511.06361).

    A concept is more general than concepts whose coordinates are all larger. The energy of a violation of this order
    becomes a probability, so that all models have the same loss:

        log P(a | b) = −‖max(0, |a| − |b|)‖²

    Args:
        concepts, dimension: see `ConceptModel`.
        spread: the initial coordinates are uniform in [0, spread).

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(self, concepts: int, *, dimension: int, spread: float = 0.1) -> None:
        super().__init__(concepts, dimension=dimension)
        scale = check_real("spread", spread, minimum=0)
        self.points = nn.Parameter(torch.rand(self.concepts, self.dimension) * scale)

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = self.points[pairs].abs().unbind(dim=-2)
        return -(first - second).clamp(min=0).square().sum(dim=-1)


def log_softplus(x: Tensor) -> Tensor:
    """Return log softplus(x) without underflow and with its gradient: x − exp(x) / 2 + O(exp(2 x)) far below 0."""
    is_small = x < SMALL
    small = x.masked_fill(~is_small, SMALL)
    return torch.where(is_small, small - 0.5 * small.exp(), F.softplus(x.masked_fill(is_small, 0)).log())


def log_gaussian_side(z: Tensor) -> Tensor:
    """Return log(z Φ(z) + φ(z)) for any z, in the precision of z.

    For z below `TAIL` the terms cancel. With the Mills ratio R(t) = (1 − Φ(t)) / φ(t) = 1 / (t + K(t)) at t = −z, the
    sum is φ(t) (1 − t R(t)) = φ(t) K(t) / (t + K(t)), and K is the continued fraction 1 / (t + 2 / (t + 3 / …)).
    """
    is_tail = z < TAIL
    near = z.masked_fill(is_tail, 0)
    density = (-0.5 * near.square() - 0.5 * math.log(2 * math.pi)).exp()
    t = -z.masked_fill(~is_tail, TAIL)
    fraction = torch.zeros_like(t)
    for term in range(FRACTION_TERMS, 0, -1):
        fraction = term / (t + fraction)
    tail = -0.5 * t.square() - 0.5 * math.log(2 * math.pi) + fraction.log() - (t + fraction).log()
    return torch.where(is_tail, tail, (near * torch.special.ndtr(near) + density).log())
