"""Linear recurrences whose matrix is diagonal, h_t = a_t ⊙ h_{t−1} + b_t, real or complex.

`diagonal_scan` is the recurrence. `state_space` is a whole layer around it, whose a_t is constant: products, scan and
readout. It has kernels on a GPU alone; on a CPU it is functions of torch around `diagonal_scan`.
"""

from gyral.ops.diagonal import layer
from gyral.ops.diagonal.naive import multiply
from gyral.ops.diagonal.scan import diagonal_scan
from gyral.ops.operator import Operator

__all__ = ["diagonal_scan", "multiply", "state_space"]

state_space = Operator(layer.state_space, {"cuda": "gyral.ops.diagonal.triton.layer"}, unread=2)
