"""`gyral.ops.rotation_power` in plain torch."""

from torch import Tensor

from gyral.ops import rotation as rotations


def rotation_power(rotation: Tensor, exponent: float) -> Tensor:
    """Return rotation^exponent; see `gyral.ops.rotation.power`.

    Args:
        rotation: (…, N, N), orthogonal, without the eigenvalue −1.
        exponent: Any real number.
    """
    return rotations.power(rotation, exponent)
