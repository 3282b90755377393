"""The selective state space of Mamba (Gu and Dao 2023, S6): one state for each channel, with gates that read the input.

h_{t,d} = exp(Δ_{t,d} A_d) ⊙ h_{t−1,d} + Δ_{t,d} u_{t,d} B_t
y_{t,d} = C_tᵀ h_{t,d}

`selective_scan` is the recurrence. `selective_state_space` has step sizes, skip and gate around it, too. It has kernels
on a GPU alone; on a CPU it is functions of torch around `selective_scan`.
"""

from typing import Any

from gyral.ops.declaration import check_shape
from gyral.ops.operator import Operator
from gyral.ops.selective_scan import layer
from gyral.ops.selective_scan.layer import rates, step_sizes
from gyral.ops.selective_scan.naive import coefficients
from gyral.ops.selective_scan.scan import selective_scan

__all__ = ["coefficients", "rates", "selective_scan", "selective_state_space", "step_sizes"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    steps, batch, channels = check_shape("u", a.u, *a.u.shape[:2], "N")
    for name in ("gate", "step"):
        check_shape(name, getattr(a, name), steps, batch, channels)
    _, size = check_shape("rate", a.rate, channels, "S")
    check_shape("matrices", a.matrices, steps, batch, 2 * size)
    for name in ("bias", "skip"):
        check_shape(name, getattr(a, name), channels)
    check_shape("h0", a.h0, batch, channels, size)


selective_state_space = Operator(
    layer.selective_state_space, {"cuda": "gyral.ops.selective_scan.triton"}, unread=2, shapes=shapes
)
