"""Depthwise convolution over time whose weights are shared by the channels of a head.

`run` is the function that cells call; `Problem` is the interface of the kernels in `cpu`, which is imported on first
use. `reference` has the equations in plain torch.
"""

from gyral.ops.convolution.problem import MODULES, Problem, Window, head_of_channel
from gyral.ops.convolution.sequence import has_kernel, run, window

__all__ = ["MODULES", "Problem", "Window", "has_kernel", "head_of_channel", "run", "window"]
