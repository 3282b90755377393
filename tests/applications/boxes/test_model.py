"""Boxes and order embeddings: volumes, probabilities and gradients at all scales, and the limits of smooth edges."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.applications.boxes.model import (
    DISJOINT,
    BoxModel,
    ConceptModel,
    GaussianBoxes,
    HardBoxes,
    OrderEmbeddings,
    SmoothedBoxes,
    log_gaussian_side,
    log_softplus,
)
from gyral.core.errors import OptionError

BOXES = (HardBoxes, SmoothedBoxes, GaussianBoxes)
ALL = torch.cartesian_prod(torch.arange(3), torch.arange(3))


def place(model: BoxModel, corners: list[tuple[float, float]]) -> None:
    """Give each concept a cube, from the first to the second coordinate in each dimension."""
    with torch.no_grad():
        for concept, (low, high) in enumerate(corners):
            model.minimum[concept] = low
            model.log_side[concept] = math.log(high - low)


@pytest.mark.parametrize("kind", BOXES)
def test_volumes_and_gradients_are_finite_for_nested_and_disjoint_boxes(kind: type[BoxModel]) -> None:
    pairs = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    for scale, dimension in itertools.product((1e-6, 1e-3, 1.0, 1e3, 1e6), (1, 20)):
        model = kind(4, dimension=dimension)
        # the second is in the first, the third overlaps with the first, the fourth is far from all
        place(model, [(0, scale), (0.25 * scale, 0.5 * scale), (0.5 * scale, 2 * scale), (4 * scale, 5 * scale)])
        for values in (model(pairs), model.log_probability(pairs)):
            assert values.isfinite().all(), (scale, dimension)
            # of all pairs at once: a gradient that is not finite makes the sum of gradients so
            for gradient in torch.autograd.grad(values.sum(), (model.minimum, model.log_side)):
                assert gradient.isfinite().all(), (scale, dimension)


@pytest.mark.parametrize("kind", [*BOXES, OrderEmbeddings])
def test_probabilities_are_at_most_one_and_one_for_the_concept_itself(kind: type[ConceptModel]) -> None:
    torch.manual_seed(0)
    model = kind(3, dimension=5)
    assert (model(ALL) <= 0).all()
    assert torch.equal(model(torch.arange(3).repeat(2, 1).T), torch.zeros(3))


def test_a_hard_box_has_the_share_of_the_volume_that_overlaps() -> None:
    model = HardBoxes(4, dimension=2)
    place(model, [(0, 4), (1, 3), (3, 5), (6, 10)])
    pairs = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 0]])
    assert model(pairs).exp().tolist() == pytest.approx([1, 4 / 16, 1 / 4, 1 / 16])
    assert model.log_probability(torch.arange(4)).exp().tolist() == pytest.approx([0.16, 0.04, 0.04, 0.16])
    disjoint = model(torch.tensor([0, 3]))
    assert disjoint.item() == pytest.approx(DISJOINT + 16 / 100 + 16 / 100 - 1)


def test_disjoint_boxes_move_towards_each_other() -> None:
    for kind in BOXES:
        model = kind(2, dimension=2)
        place(model, [(0, 1), (3, 4)])
        model(torch.tensor([0, 1])).backward()
        assert model.minimum.grad is not None
        assert (model.minimum.grad[0] > 0).all(), "the probability grows when the lower box moves up"
        assert (model.minimum.grad[1] < 0).all()


@pytest.mark.parametrize("kind", [SmoothedBoxes, GaussianBoxes])
def test_edges_become_hard_at_low_temperatures(kind: type[SmoothedBoxes]) -> None:
    hard, smooth = HardBoxes(3, dimension=2), kind(3, dimension=2, temperature=1e-3)
    for model in (hard, smooth):
        place(model, [(0, 4), (1, 3), (3.5, 5)])
    overlapping = torch.tensor([[0, 1], [1, 0], [0, 2], [2, 0]])
    torch.testing.assert_close(smooth(overlapping), hard(overlapping), rtol=1e-4, atol=1e-4)


def test_smooth_volumes_are_products_of_softplus() -> None:
    model = SmoothedBoxes(3, dimension=4, temperature=0.5)
    box = model.boxes(torch.arange(3))
    expected = (0.5 * F.softplus(box.side / 0.5)).prod(dim=-1)
    torch.testing.assert_close(model.log_volume(box).exp(), expected)


def test_the_gaussian_side_is_the_integral_of_the_normal_distribution_function() -> None:
    steps = torch.linspace(-12, 1.5, 270_001, dtype=torch.float64)
    integral = torch.trapezoid(torch.special.ndtr(steps), steps)
    assert log_gaussian_side(torch.tensor(1.5, dtype=torch.float64)).exp().item() == pytest.approx(integral.item())


@pytest.mark.parametrize("function", [log_softplus, log_gaussian_side])
def test_logarithms_of_sides_are_smooth_and_have_exact_gradients(function: type) -> None:
    points = torch.tensor([-40.0, -15.001, -14.999, -8, -3.001, -2.999, -1, 0, 3, 50], dtype=torch.float64)
    assert torch.autograd.gradcheck(function, points.requires_grad_())
    across = function(torch.linspace(-20, 0, 20_001, dtype=torch.float64))
    slopes = across.diff() / 1e-3
    assert (slopes.diff() < 1e-9).all(), "the logarithm of the side is concave"
    far = torch.tensor([-1e6, 1e6], requires_grad=True)
    assert function(far).isfinite().all()
    assert torch.autograd.grad(function(far).sum(), far)[0].isfinite().all()


def test_single_precision_is_close_to_double_in_the_tail() -> None:
    points = torch.linspace(-30, 5, 351)
    exact: Tensor = log_gaussian_side(points.double())
    np.testing.assert_allclose(log_gaussian_side(points).numpy(), exact.numpy(), rtol=2e-5, atol=2e-5)


def test_order_embeddings_are_transitive() -> None:
    model = OrderEmbeddings(3, dimension=2)
    with torch.no_grad():
        model.points.copy_(torch.tensor([[0.0, 0.0], [1.0, -0.5], [2.0, 1.0]]))
    general = torch.tensor([[0, 1], [1, 2], [0, 2]])
    assert model(general).tolist() == [0, 0, 0]
    assert model(general.flip(1)).tolist() == [-1.25, -1.25, -5]


@pytest.mark.parametrize(
    "options", [{"dimension": 0}, {"dimension": 2, "temperature": 0.0}, {"dimension": 2, "side": -1}]
)
def test_sizes_that_are_not_allowed_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(OptionError):
        SmoothedBoxes(3, **options)
