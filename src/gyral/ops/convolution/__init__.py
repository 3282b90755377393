"""Depthwise convolution over time whose weights are shared by the channels of a head.

Cells call `run`. `Arguments` is the interface of the kernels in `cpu`, which is imported on first use. `reference`
has the equations in plain torch.
"""

from gyral.ops.convolution.arguments import MODULES, Arguments, Window, head_of_channel
from gyral.ops.convolution.sequence import has_kernel, run, unsupported_reason, window

__all__ = [
    "MODULES",
    "Arguments",
    "Window",
    "has_kernel",
    "head_of_channel",
    "run",
    "unsupported_reason",
    "window",
]
