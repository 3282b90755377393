"""The models that boxes are compared with: their formulas, and what they can represent."""

import math

import pytest
import torch

from gyral.applications.boxes.baselines import (
    ComplexBilinear,
    GaussianEmbeddings,
    MatrixFactorization,
    ProbabilisticOrderEmbeddings,
)
from gyral.applications.boxes.model import ConceptModel, HardBoxes
from gyral.core.errors import OptionError
from tests.helpers.running import build_task

MODELS = (ProbabilisticOrderEmbeddings, GaussianEmbeddings, MatrixFactorization, ComplexBilinear)
ALL = torch.cartesian_prod(torch.arange(4), torch.arange(4))


@pytest.mark.parametrize("kind", MODELS)
def test_probabilities_are_asymmetric_and_have_gradients(kind: type[ConceptModel]) -> None:
    torch.manual_seed(0)
    model = kind(4, dimension=5, spread=0.5)  # type: ignore[call-arg]
    values = model(ALL)
    assert values.shape == (16,)
    assert (values <= 1e-6).all()
    assert not torch.allclose(values, model(ALL.flip(1)))
    values.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0, name
    with pytest.raises(OptionError, match="spread=-1"):
        kind(4, dimension=5, spread=-1)  # type: ignore[call-arg]


def test_probabilistic_order_embeddings_have_the_probability_of_the_maximum() -> None:
    torch.manual_seed(0)
    model = ProbabilisticOrderEmbeddings(4, dimension=3, spread=2.0)
    points = model.points[ALL].abs()
    joint = -points.amax(dim=-2).sum(dim=-1)
    torch.testing.assert_close(model(ALL), joint - model.log_probability(ALL[:, 1]))
    marginals = model.log_probability(ALL).sum(dim=-1)
    assert (joint >= marginals - 1e-6).all(), "no negative correlation"


def test_gaussian_embeddings_are_compared_by_their_divergence() -> None:
    torch.manual_seed(0)
    model = GaussianEmbeddings(4, dimension=3, spread=1.0)
    general, specific = (
        torch.distributions.Normal(model.mean[rows], (0.5 * model.log_variance[rows]).exp()) for rows in ALL.T
    )
    expected = torch.distributions.kl_divergence(specific, general).sum(dim=-1)
    torch.testing.assert_close(-model(ALL), expected)


def test_the_complex_form_equals_the_product_of_complex_numbers() -> None:
    torch.manual_seed(0)
    model = ComplexBilinear(4, dimension=3)
    embeddings, relation = (torch.view_as_complex(each.detach()) for each in (model.embeddings, model.relation))
    first, second = embeddings[ALL].unbind(dim=-2)
    score = (relation * second * first.conj()).sum(dim=-1).real
    torch.testing.assert_close(model(ALL).detach(), score.sigmoid().log())


def test_matrix_factorization_has_the_given_rank() -> None:
    model = MatrixFactorization(4, dimension=2)
    probabilities = model(ALL).exp().double()
    assert torch.linalg.matrix_rank(torch.logit(probabilities).reshape(4, 4), rtol=1e-4) == 2


def test_boxes_represent_a_lattice_that_probabilistic_order_embeddings_cannot() -> None:
    task = build_task("task=lattice", "model=box", "model.dimension=2")
    pairs = task.data.splits["test"]
    assert len(pairs.pairs) == 8 * 7
    table = {(task.names[a], task.names[b]): p for (a, b), p in zip(pairs.pairs, pairs.targets.tolist(), strict=True)}
    assert table["pet", "predator"] == 0.5
    assert table["predator", "herbivore"] == 0
    assert table["predator", "wolf"] == table["animal", "wolf"] == 1
    assert table["wolf", "animal"] == 0.25
    # pets are the middle of a row of leaves: wolf, cat | rabbit, deer
    places = {"animal": (0, 4), "predator": (0, 2), "herbivore": (2, 4), "pet": (1, 3)}
    places |= {leaf: (place, place + 1) for place, leaf in enumerate(("wolf", "cat", "rabbit", "deer"))}
    model: HardBoxes = task.model
    with torch.no_grad():
        for number, name in enumerate(task.names):
            low, high = places[name]
            model.minimum[number] = torch.tensor([low, 0.0])
            model.log_side[number] = torch.tensor([math.log(high - low), 0.0])
    torch.testing.assert_close(
        model(torch.from_numpy(pairs.pairs)).exp().detach(), torch.from_numpy(pairs.targets), atol=1e-6, rtol=1e-6
    )
