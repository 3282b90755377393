"""Models that box embeddings are compared with: points in an order, Gaussian distributions, and factorizations."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.applications.boxes.model import ConceptModel
from gyral.core.checks import check_real


class ProbabilisticOrderEmbeddings(ConceptModel):
    """Points in the positive orthant, each with the probability of the cone above it.

    POE of Lai and Hockenmaier (EACL 2017): a concept has the probability exp(−‖x‖₁), and the cone above the
    coordinate-wise maximum of two points has their joint probability. So

        log P(a | b) = −Σ_i max(0, |a_i| − |b_i|)

    Two concepts are never correlated negatively: P(a, b) is at least P(a) P(b).

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

    def log_probability(self, concepts: Tensor) -> Tensor:
        """Return log P(a) of concepts (…,)."""
        return -self.points[concepts].abs().sum(dim=-1)

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = self.points[pairs].abs().unbind(dim=-2)
        return -(first - second).clamp(min=0).sum(dim=-1)


class GaussianEmbeddings(ConceptModel):
    """Concepts are normal distributions with diagonal covariance, as in word2gauss.

    Vilnis and McCallum (ICLR 2015, arXiv:1412.6623) compare them by the Kullback-Leibler divergence of the specific
    from the general concept. Here it becomes a probability, so that all models have the same loss:

        log P(a | b) = −KL(N_b ‖ N_a) = −½ Σ_i [(σ_b² + (μ_b − μ_a)²) / σ_a² − 1 − log(σ_b² / σ_a²)]

    Means are normal with standard deviation `spread` at first, and logarithms of variances with 0.1.

    Args:
        concepts, dimension: see `ConceptModel`.
        spread: standard deviation of the initial means.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(self, concepts: int, *, dimension: int, spread: float = 0.1) -> None:
        super().__init__(concepts, dimension=dimension)
        shape = (self.concepts, self.dimension)
        self.mean = nn.Parameter(torch.randn(shape) * check_real("spread", spread, minimum=0))
        self.log_variance = nn.Parameter(0.1 * torch.randn(shape))

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = self.mean[pairs].unbind(dim=-2)
        general, specific = self.log_variance[pairs].unbind(dim=-2)
        ratio = specific - general
        distance = (second - first).square() * (-general).exp()
        return -0.5 * (ratio.exp() + distance - 1 - ratio).sum(dim=-1)


class MatrixFactorization(ConceptModel):
    """The matrix of conditional probabilities has a low rank before the logistic function.

        P(a | b) = σ(u_a · v_b)

    Because the matrix is not symmetric, a concept has one vector as a and another one as b.

    Args:
        concepts, dimension: see `ConceptModel`; `dimension` is the rank.
        spread: standard deviation of the initial coordinates.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(self, concepts: int, *, dimension: int, spread: float = 0.3) -> None:
        super().__init__(concepts, dimension=dimension)
        scale = check_real("spread", spread, minimum=0)
        self.first = nn.Parameter(torch.randn(self.concepts, self.dimension) * scale)
        self.second = nn.Parameter(torch.randn(self.concepts, self.dimension) * scale)

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = pairs.unbind(dim=-1)
        return F.logsigmoid((self.first[first] * self.second[second]).sum(dim=-1))


class ComplexBilinear(ConceptModel):
    """A bilinear form of complex vectors (ComplEx of Trouillon et al., ICML 2016, arXiv:1606.06357).

        P(a | b) = σ(Re Σ_i w_i b_i conj(a_i))

    w is the vector of the one relation. Its imaginary part makes the form asymmetric.

    Args:
        concepts, dimension: see `ConceptModel`; `dimension` is the number of complex coordinates.
        spread: standard deviation of the initial real and imaginary parts of concepts; those of w have 1.

    Raises:
        OptionError: an option is out of bounds.
    """

    def __init__(self, concepts: int, *, dimension: int, spread: float = 0.3) -> None:
        super().__init__(concepts, dimension=dimension)
        scale = check_real("spread", spread, minimum=0)
        self.embeddings = nn.Parameter(torch.randn(self.concepts, self.dimension, 2) * scale)
        self.relation = nn.Parameter(torch.randn(self.dimension, 2))

    def forward(self, pairs: Tensor) -> Tensor:
        first, second = self.embeddings[pairs].unbind(dim=-3)
        (a, a_imag), (b, b_imag), (w, w_imag) = (each.unbind(dim=-1) for each in (first, second, self.relation))
        score = w * (a * b + a_imag * b_imag) + w_imag * (a_imag * b - a * b_imag)
        return F.logsigmoid(score.sum(dim=-1))
