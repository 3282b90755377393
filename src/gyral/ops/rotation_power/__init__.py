"""Real powers of rotations: R^λ = exp(λ log R) for orthogonal matrices R.

`gyral.ops.rotation.power` is the same in plain torch. Where that raises an error, for a matrix with exactly the
eigenvalue −1, the kernel returns NaN.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.rotation_power import naive

__all__ = ["rotation_power"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    check_shape("rotation", a.rotation, *a.rotation.shape[:-1], a.rotation.shape[-2])


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    size = a.rotation.shape[-1]
    return {"batch": a.rotation[..., 0, 0].numel(), "size": size}


def planes(a: Any, *further: int) -> Tensor:
    """Return a tensor without values for numbers of the planes of each rotation."""
    *leading, size, _ = a.rotation.shape
    made: Tensor = a.rotation.new_empty(*leading, -(-size // 2), *further)
    return made


KERNELS = Kernels(
    Path(__file__).with_name("rotation_power.cpp"),
    sizes=sizes,
    results={"powered": like("rotation")},
    kept={"vectors": lambda a: planes(a, 2, a.rotation.shape[-1]), "half_angles": planes, "inverse": like("rotation")},
    gradients={"rotation": like("rotation")},
)
rotation_power = Operator(naive.rotation_power, {"cpu": KERNELS}, shapes=shapes)
