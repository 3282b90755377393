"""Composition of 3-D rotations: read rotations one by one, then return their composition.

An example of length 3; each rotation is its axis times its angle:

    input       1.57,0,0 0,1.57,0 -1.57,0,0
    target      0,0,1.57
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from gyral.core.measures import MAE, MSE, R2, Measure
from gyral.core.options import Increasing, PositiveInt
from gyral.data.batching import Batch
from gyral.data.drawn import categories_of_test
from gyral.models.attention import LastStep
from gyral.tasks.data_module import DrawnData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import CategoryRegressionMetrics
from gyral.tasks.objective import Regression
from gyral.tasks.rendering import align, describe_value

VECTOR = 3


class RotationsData(DrawnData):
    """Inputs (B, T, 3): rotations r_1, …, r_T. Targets (B, 3): their composition r_1 ∘ r_2 ∘ … ∘ r_T.

    A rotation is a vector: the direction is the axis, the norm is the angle in radians. Axes are uniform on the sphere
    and angles uniform in [0, π). The angle of the composition is in [0, π]. As in the navigation of a body, r_t turns
    about the axes that r_1 … r_{t−1} have turned: with matrices, R = R_1 R_2 … R_T.

    Args:
        length: T, number of rotations.
        test_lengths: lengths of further tests.
        batch_size, eval_batch_size, val_batches, test_batches, data_seed: see `gyral.tasks.data_module.DrawnData`.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 6}

    length: PositiveInt = 20
    test_lengths: Annotated[Sequence[int], Increasing()] = ()

    def __post_init__(self) -> None:
        self.lengths = [self.length, *self.test_lengths]
        self.categories = list(map(str, self.test_lengths))
        self.tests = len(self.lengths)

    def draw(self, generator: np.random.Generator, split: str, test: int) -> Batch:
        axes = generator.standard_normal((self.size_of(split), self.lengths[test], VECTOR))
        axes /= np.linalg.norm(axes, axis=-1, keepdims=True)
        angles = generator.uniform(0, math.pi, (*axes.shape[:2], 1))
        quaternions = np.concatenate([np.cos(angles / 2), axes * np.sin(angles / 2)], axis=-1)
        targets = rotation_vectors(compose(quaternions))
        inputs = torch.from_numpy((axes * angles).astype(np.float32))
        categories = categories_of_test(self.size_of(split), self.tests, test)
        return Batch(inputs, torch.from_numpy(targets.astype(np.float32)), categories=categories)


def compose(quaternions: np.ndarray) -> np.ndarray:
    """Return the product q_1 q_2 … q_T, (B, 4), of unit quaternions (B, T, 4) whose first element is real."""
    while quaternions.shape[1] > 1:
        left, right = quaternions[:, 0:-1:2], quaternions[:, 1::2]
        last = quaternions[:, 2 * left.shape[1] :]  # of an odd number
        quaternions = np.concatenate([_multiply(left, right), last], axis=1)
    return quaternions[:, 0]


def _multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the products of quaternions (…, 4)."""
    a, u, b, v = left[..., :1], left[..., 1:], right[..., :1], right[..., 1:]
    real = a * b - (u * v).sum(axis=-1, keepdims=True)
    return np.concatenate([real, a * v + b * u + np.cross(u, v)], axis=-1)


def rotation_vectors(quaternions: np.ndarray) -> np.ndarray:
    """Return the rotations (B, 3) of unit quaternions (B, 4), axis times angle, with angles in [0, π]."""
    shortest = np.where(quaternions[:, :1] < 0, -quaternions, quaternions)  # q and −q are the same rotation
    sines = np.linalg.norm(shortest[:, 1:], axis=1, keepdims=True)
    angles = 2 * np.arctan2(sines, shortest[:, :1])
    return shortest[:, 1:] * angles / np.maximum(sines, np.finfo(np.float64).tiny)


def memoryless_error(length: int) -> float:
    """Return the mean squared error per element of a predictor of zero, which is the mean of the targets.

    The distribution of the composition is a series of the characters χ_l(θ) = sin((l + ½)θ) / sin(θ/2) of the rotation
    group. A step has the coefficient E χ_l / (2l + 1) = 1 / (2l + 1), so that T steps have the density

        p(θ) = (1 − cos θ)/π · Σ_l (2l + 1)^(1 − T) χ_l(θ)   of the angle,   and   E θ² = Σ_l (2l + 1)^(1 − T) c_l

    with c_0 = π²/3 + 2 and c_l = 2 (−1)^l (1/l² + 1/(l + 1)²). It is π²/9 for T = 1, and tends to π²/9 + 2/3.
    """
    if length == 1:
        return math.pi**2 / 9
    terms = (2 * (-1) ** n * (1 / n**2 + 1 / (n + 1) ** 2) * (2 * n + 1) ** (1 - length) for n in range(1, 1000))
    return (math.pi**2 / 3 + 2 + sum(terms)) / VECTOR


REPORTED_LENGTHS = (40, 80, 100, 160, 1000)  # further tests that reports show


class RotationsTask(DataTask[RotationsData]):
    """Composition of rotations (smorad/memax, memax/datasets/continuous_localization.py), regression at the end.

    The source has 20, 100 and 1,000 steps, 60,000 fixed sequences for training and 10,000 for the test, two layers of
    width 256, and a learning rate of 1e-4. Its axes are uniform vectors of a cube, normalized, which favour the
    corners; here they are uniform on the sphere, and training repeats no sequence. The target jumps where the angle
    passes π, so that a continuous model has some error.

    The loss is the mean squared error. A predictor without memory returns 0; its error is that of `memoryless_error`,
    1.763 for 20 steps. A test also reports the errors at further lengths, such as `test/mse_100`.
    """

    data_class = RotationsData
    measures = (
        MSE,
        *(
            Measure(f"mse_{length}", f"mean squared error at {length} steps", digits=4, higher_is_better=False)
            for length in REPORTED_LENGTHS
        ),
        MAE,
        R2,
    )

    @classmethod
    def arguments(cls, data: RotationsData) -> dict[str, Any]:
        return {
            "input_size": VECTOR,
            "objective": Regression(VECTOR),
            "readout": LastStep,
            "baseline": memoryless_error(data.lengths[0]),
            "metrics": CategoryRegressionMetrics(VECTOR, data.categories),
            "max_writes": max(data.lengths),
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        lines = align({"input": [describe_value(vector) for vector in batch.inputs[row].tolist()]})
        for name, values in (("target", batch.targets), ("prediction", predicted)):
            lines += f"\n{name:<11} {describe_value(values[row].tolist())}"
        return lines
