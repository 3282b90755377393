"""A constant diagonal state space for each channel, with complex states (S4D).

h_{t,c} = λ_c ⊙ h_{t−1,c} + x_{t,c}                            P complex numbers
y_{t,c} = Σ_p Re(w_{c,p} h_{t,c,p})

`channel_scan` is the recurrence. `channel_state_space` has the discretization and the skip, too. It has kernels on a
GPU alone; on a CPU it is functions of torch around `channel_scan`.
"""

from typing import Any

from gyral.ops.channel_scan import layer
from gyral.ops.channel_scan.layer import discretized
from gyral.ops.channel_scan.scan import channel_scan
from gyral.ops.declaration import check_shape
from gyral.ops.operator import Operator

__all__ = ["channel_scan", "channel_state_space", "discretized"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    _, batch, channels = check_shape("inputs", a.inputs, *a.inputs.shape[:2], "N")
    _, size = check_shape("rate", a.rate, channels, "P")
    check_shape("frequency", a.frequency, channels, size)
    check_shape("readout", a.readout, 2, channels, size)
    for name in ("scale", "skip"):
        check_shape(name, getattr(a, name), channels)
    check_shape("h0", a.h0, batch, 2 * channels * size)


channel_state_space = Operator(
    layer.channel_state_space, {"cuda": "gyral.ops.channel_scan.triton"}, unread=2, shapes=shapes
)
