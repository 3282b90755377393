"""Objects, concepts and relations in spaces of attributes (Mao et al., ICLR 2019, arXiv:1904.12584, section 3.1)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.applications.scenes.data.collection import CROP
from gyral.applications.scenes.data.language import ATTRIBUTES, CONCEPTS, RELATIONS
from gyral.core.checks import check_integer, check_real


class Grounding(NamedTuple):
    """Probabilities of the concepts in S scenes of up to N objects.

    Attributes:
        is_there: (S, N) 1 for objects, 0 for padding.
        concepts: (S, C, N) probability that an object has a concept.
        relations: (S, R + A, N, N), for the R relations, the probability that object j has the relation to object i, at
            [i, j]; then for the A attributes, that two different objects have the same value.
        values: (S, A, N, C) distribution over the concepts as the value of an attribute of an object.
    """

    is_there: Tensor
    concepts: Tensor
    relations: Tensor
    values: Tensor


class SceneConcepts(nn.Module):
    """Computes the concepts and the relations of objects with given positions.

    A convolutional network maps the crop of an object to its features o. Each attribute a has a linear map u_a to a
    space in which the concepts are vectors v_c. The probability that object o has concept c is

        Σ_a b_{c,a} σ((cos(u_a(o), v_c) − γ) / τ),   b_c = softmax over the attributes of learned numbers,

    and the value of its attribute a is c with a probability proportional to b_{c,a} exp(cos(u_a(o), v_c) / τ). The
    attribute of a concept is therefore learned. Relations are computed in the same way, in one space, with a perceptron
    on the features and the positions of two objects instead of u.

    Args:
        features: size of o.
        embedding_size: size of the vectors of concepts.
        temperature: τ.
        margin: γ.

    Raises:
        OptionError: an argument is out of bounds.
    """

    def __init__(self, *, features: int, embedding_size: int, temperature: float, margin: float) -> None:
        super().__init__()
        check_integer("features", features)
        check_integer("embedding_size", embedding_size)
        self.temperature = check_real("temperature", temperature, above=0)
        self.margin = check_real("margin", margin, minimum=-1, below=1)
        side = CROP // 8
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * side * side, features),
            nn.ReLU(),
        )
        self.attributes = nn.Linear(features, len(ATTRIBUTES) * embedding_size)
        self.concepts = nn.Parameter(torch.randn(len(CONCEPTS), embedding_size))
        self.belongs = nn.Parameter(torch.zeros(len(CONCEPTS), len(ATTRIBUTES)))
        self.first, self.second = (nn.Linear(features + 2, features) for _ in range(2))
        self.pair = nn.Linear(features, embedding_size)
        self.relations = nn.Parameter(torch.randn(len(RELATIONS), embedding_size))

    def forward(self, crops: Tensor, positions: Tensor, objects: Tensor) -> Grounding:
        """Return the probabilities of the concepts in the scenes of a batch."""
        scenes, most = crops.shape[:2]
        is_there = torch.arange(most, device=crops.device) < objects.unsqueeze(1)
        pictures = crops[is_there].permute(0, 3, 1, 2).to(self.concepts.dtype) / 127.5 - 1
        features = pictures.new_zeros(scenes, most, self.pair.in_features)
        features[is_there] = self.network(pictures).to(features.dtype)  # autocast computes in half precision
        mask = is_there.to(features.dtype)

        vectors = self.attributes(features).view(scenes, most, len(ATTRIBUTES), -1)
        cosines = torch.einsum("snae,ce->snac", F.normalize(vectors, dim=-1), F.normalize(self.concepts, dim=-1))
        belongs = self.belongs.softmax(dim=1).t()  # (A, C)
        has = (((cosines - self.margin) / self.temperature).sigmoid() * belongs).sum(dim=2)
        values = (cosines / self.temperature + belongs.log()).softmax(dim=-1).transpose(1, 2)  # (S, A, N, C)
        pairs = torch.cat((self._related(features, positions), values @ values.mT), dim=1)
        different = 1 - torch.eye(most, device=mask.device, dtype=mask.dtype)
        return Grounding(
            is_there=mask,
            concepts=has.transpose(1, 2) * mask.unsqueeze(1),
            relations=pairs * (mask.unsqueeze(1) * mask.unsqueeze(2) * different).unsqueeze(1),
            values=values,
        )

    def _related(self, features: Tensor, positions: Tensor) -> Tensor:
        """Return the probabilities of the relations, (S, R, N, N)."""
        placed = torch.cat((features, positions.to(features.dtype)), dim=-1)
        pairs = self.pair((self.first(placed).unsqueeze(2) + self.second(placed).unsqueeze(1)).relu())
        cosines = F.normalize(pairs, dim=-1) @ F.normalize(self.relations, dim=-1).t()
        return ((cosines - self.margin) / self.temperature).sigmoid().permute(0, 3, 1, 2)
