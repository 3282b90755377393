"""Composition of rotations against products of matrices, and the closed form of its baseline."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.tasks.rotations import RotationsData, compose, memoryless_error, rotation_vectors
from tests.helpers.running import build_task


def data(**options: Any) -> RotationsData:
    sizes = {"batch_size": 2500, "val_batches": 4, "test_batches": 1, "data_seed": 3}
    return RotationsData(**{**sizes, **options})


def matrices(vectors: np.ndarray) -> np.ndarray:
    """Return the matrices (…, 3, 3) of rotation vectors (…, 3), the exponentials of their cross products."""
    x, y, z = np.moveaxis(vectors, -1, 0)
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(*x.shape, 3, 3)
    return torch.linalg.matrix_exp(torch.from_numpy(cross)).numpy()


@pytest.mark.parametrize("length", [1, 2, 7, 20])
def test_target_is_the_product_of_the_matrices(length: int) -> None:
    seen = 0
    for batch in data(length=length).loader("val"):
        assert batch.inputs.shape == (2500, length, 3)
        product = np.eye(3)
        for rotation in np.moveaxis(matrices(batch.inputs.double().numpy()), 1, 0):
            product = product @ rotation
        target = batch.targets.double().numpy()
        assert np.linalg.norm(target, axis=1).max() <= math.pi + 1e-6
        np.testing.assert_allclose(matrices(target), np.broadcast_to(product, (2500, 3, 3)), atol=5e-6)
        seen += len(target)
    assert seen == 10_000


def test_a_thousand_rotations_keep_their_precision() -> None:
    batch = next(iter(data(length=1000, batch_size=8).loader("val")))
    product = np.eye(3)
    for rotation in np.moveaxis(matrices(batch.inputs.double().numpy()), 1, 0):
        product = product @ rotation
    np.testing.assert_allclose(matrices(batch.targets.double().numpy()), product, atol=1e-4)


def test_the_example_of_the_docstring_and_the_identity() -> None:
    quarter = math.sqrt(0.5)
    turns = [[quarter, quarter, 0, 0], [quarter, 0, quarter, 0], [quarter, -quarter, 0, 0]]
    vectors = rotation_vectors(np.array(turns))
    np.testing.assert_allclose(vectors, math.pi / 2 * np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0]]), atol=1e-12)
    [target] = rotation_vectors(compose(np.array([turns])))
    np.testing.assert_allclose(target, [0, 0, math.pi / 2], atol=1e-12)
    assert rotation_vectors(np.array([[1.0, 0, 0, 0], [-1.0, 0, 0, 0]])).tolist() == [[0, 0, 0]] * 2


def test_axes_are_uniform_on_the_sphere_and_angles_in_half_a_turn() -> None:
    inputs = next(iter(data().loader("val"))).inputs.numpy().reshape(-1, 3)
    angles = np.linalg.norm(inputs, axis=1)
    assert np.histogram(angles, 5, (0, math.pi))[0] / len(angles) == pytest.approx(np.full(5, 0.2), abs=0.01)
    for axis in (inputs / angles[:, None]).T:  # each coordinate of a uniform point of the sphere is uniform
        assert np.histogram(axis, 4, (-1, 1))[0] / len(axis) == pytest.approx(np.full(4, 0.25), abs=0.01)


@pytest.mark.parametrize("length", [1, 2, 4, pytest.param(20, marks=pytest.mark.slow)])
def test_baseline_is_the_error_of_the_mean(length: int) -> None:
    made = data(length=length, batch_size=10_000, val_batches=20)
    targets = torch.cat([batch.targets for batch in made.loader("val")])
    assert targets.mean(dim=0).abs().max() < 0.01
    assert targets.square().mean().item() == pytest.approx(memoryless_error(length), rel=0.006)


def test_baseline_tends_to_the_variance_of_uniform_rotations() -> None:
    angles = np.linspace(0, math.pi, 100_001)
    uniform = np.trapezoid(angles**2 * (1 - np.cos(angles)) / math.pi, angles) / 3
    assert memoryless_error(50) == pytest.approx(uniform, rel=1e-8)
    assert round(memoryless_error(20), 3) == 1.763


def test_a_test_reports_the_errors_at_each_length() -> None:
    task = build_task("task=rotations", "model=gru", "model.cell.hidden_size=4", test_lengths=[40], test_batches=1)
    for batch, error in zip(task.data.loader("test"), (0.0, 0.5), strict=True):
        outputs = batch.targets + error
        task.metrics.update(outputs, batch, task.loss(outputs, batch))
    results = task.test_results()
    assert results["mse_40"] == pytest.approx(0.25, rel=1e-6)
    assert results["mae_40"] == pytest.approx(0.5, rel=1e-6)
    assert (results["loss"], results["mse"], results["mae"], results["r2"]) == (0, 0, 0, 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 0}, "length=0: must be an integer ≥ 1"),
        ({"test_lengths": [9, 5]}, "test_lengths=[9, 5]: must be increasing integers ≥ 1, such as [2, 4]"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
