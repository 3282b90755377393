"""Lie groups that act on the keys of a Lie-access memory (Yang, "Lie Access Neural Turing Machine", 2016).

Keys are points of a plane, and a step is an element of the group. All functions act on the last dimension, of size 2.
Numbers that a network emits are unbounded; `element` and `point` make group elements and keys of them.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

EPSILON = 1e-12  # added to a squared norm before its root, whose gradient at zero is infinite
DISK_EPSILON = 1e-5  # distance of the points of the disk from its boundary, which is infinitely far away


class Group(ABC):
    """A Lie group that acts on a plane.

    Args:
        normalizes: Whether `element` first divides its argument by its norm.
    """

    def __init__(self, normalizes: bool = False) -> None:
        self.normalizes = normalizes

    def element(self, raw: Tensor) -> Tensor:
        """Return group elements (…, 2) for any numbers (…, 2)."""
        return self.initial_element(normalize(raw) if self.normalizes else raw)

    def initial_element(self, raw: Tensor) -> Tensor:
        """Return group elements (…, 2) for any numbers (…, 2), which are never normalized as an option."""
        return raw

    def point(self, raw: Tensor) -> Tensor:
        """Return keys (…, 2) for any numbers (…, 2)."""
        return raw

    @abstractmethod
    def identity(self, like: Tensor) -> Tensor:
        """Return the neutral element (2,), on the device and in the dtype of `like`."""

    @abstractmethod
    def act(self, element: Tensor, key: Tensor) -> Tensor:
        """Return the keys (…, 2) to which the elements (…, 2) move the keys (…, 2)."""

    def interpolate(self, old: Tensor, new: Tensor, weight: Tensor) -> Tensor:
        """Return an element between `old`, at weight 0, and `new`, at weight 1; weights are (…, 1)."""
        return old + weight * (new - old)

    def squared_distance(self, first: Tensor, second: Tensor) -> Tensor:
        """Return the squared distance (…,) of keys (…, 2)."""
        return (first - second).square().sum(-1)


class Translation(Group):
    """Translations of the plane: a key k moves to k + v."""

    def identity(self, like: Tensor) -> Tensor:
        return like.new_zeros(2)

    def act(self, element: Tensor, key: Tensor) -> Tensor:
        return key + element


class ScalingRotation(Group):
    """Scalings and rotations about the origin, R* × SO(2): a key k moves to v k, the product of complex numbers."""

    def identity(self, like: Tensor) -> Tensor:
        return like.new_tensor([1.0, 0.0])

    def act(self, element: Tensor, key: Tensor) -> Tensor:
        return complex_product(element, key)


class Rotation(ScalingRotation):
    """Rotations about the origin, SO(2): a key k moves to v k, the product of complex numbers with |v| = 1."""

    def initial_element(self, raw: Tensor) -> Tensor:
        return normalize(raw)

    def interpolate(self, old: Tensor, new: Tensor, weight: Tensor) -> Tensor:
        return normalize(super().interpolate(old, new, weight))


class Hyperbolic(Group):
    """Translations of the hyperbolic plane, in the Poincaré disk: a key k moves to v ⊕ k, the Möbius sum.

        v ⊕ k = (v + k) / (1 + v̄ k)                                               of complex numbers
        d(k, a) = arcosh(1 + 2 |k − a|² / ((1 − |k|²) (1 − |a|²)))

    Yang (2016) suggests the plane and does not try it. A key of numbers z is the point tanh(|z|) z / |z|, at the
    distance 2 |z| from the origin. A step of numbers z is the point of STEP_SCALE · z: on a straight line 100
    normalized steps end at the distance 10, where 1 − |k| is about 1e-4; float32 resolves little beyond.
    """

    STEP_SCALE = 0.05

    def initial_element(self, raw: Tensor) -> Tensor:
        return self.point(self.STEP_SCALE * raw)

    def point(self, raw: Tensor) -> Tensor:
        norm = (raw.square().sum(-1, keepdim=True) + EPSILON).sqrt()
        return _within_disk(norm.tanh() / norm * raw)

    def identity(self, like: Tensor) -> Tensor:
        return like.new_zeros(2)

    def act(self, element: Tensor, key: Tensor) -> Tensor:
        conjugate = element * element.new_tensor([1.0, -1.0])
        divisor = complex_product(conjugate, key) + element.new_tensor([1.0, 0.0])
        quotient = complex_product(element + key, divisor * element.new_tensor([1.0, -1.0]))
        return _within_disk(quotient / divisor.square().sum(-1, keepdim=True))

    def squared_distance(self, first: Tensor, second: Tensor) -> Tensor:
        space = (1 - first.square().sum(-1)) * (1 - second.square().sum(-1))
        excess = 2 * (first - second).square().sum(-1) / space
        # arcosh(1 + x) = log(1 + x + √(x (x + 2))), whose derivative at x = 0 is infinite
        distance = torch.log1p(excess + (excess * (excess + 2) + EPSILON).sqrt())
        return distance.square()


GROUPS: dict[str, type[Group]] = {
    "translation": Translation,
    "rotation": Rotation,
    "scaling_rotation": ScalingRotation,
    "hyperbolic": Hyperbolic,
}


def normalize(vectors: Tensor) -> Tensor:
    """Return vectors (…, 2) divided by their norms; the zero vector stays zero."""
    return vectors / (vectors.square().sum(-1, keepdim=True) + EPSILON).sqrt()


def complex_product(first: Tensor, second: Tensor) -> Tensor:
    """Return the products (…, 2) of complex numbers (…, 2)."""
    a, b = first.unbind(-1)
    c, d = second.unbind(-1)
    return torch.stack((a * c - b * d, a * d + b * c), dim=-1)


def _within_disk(points: Tensor) -> Tensor:
    """Return points (…, 2), those at the boundary of the disk, which rounding can reach, moved inside."""
    norm = (points.square().sum(-1, keepdim=True) + EPSILON).sqrt()
    return points * (norm.clamp(max=1 - DISK_EPSILON) / norm)
