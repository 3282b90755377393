"""Complex numbers of any phase inside the unit circle, σ(u) exp(2πi σ(v)), as the decay of a linear recurrence.

The operator has kernels on a GPU alone; on a CPU it is functions of torch.
"""

from typing import Any

from gyral.ops.declaration import check_shape
from gyral.ops.operator import Operator
from gyral.ops.polar import naive

__all__ = ["polar"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    check_shape("phase", a.phase, *a.magnitude.shape)


polar = Operator(naive.polar, {"cuda": "gyral.ops.polar.triton"}, shapes=shapes)
