"""The exponential gates of mLSTM, of all steps at once: their stabilizer, and what is left of memory and inputs.

    m_t = max(log σ(f_t) + m_{t−1}, i_t),  decay_t = log σ(f_t) + m_{t−1} − m_t,  write_t = scale e^{i_t − m_t}

with which the memory becomes e^{decay_t} times the memory plus write_t times what is new.

mLSTM: Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, equations 23 to 27. The operator has kernels
on a GPU alone; on a CPU it is functions of torch.
"""

from typing import Any

from gyral.ops.declaration import check_shape
from gyral.ops.operator import Operator
from gyral.ops.stabilized_gates import naive
from gyral.ops.stabilized_gates.naive import NEVER

__all__ = ["NEVER", "stabilized_gates"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    steps, batch = a.gates.shape[:2]
    _, heads = check_shape("first", a.first, batch, "H")
    check_shape("gates", a.gates, steps, batch, 2 * heads)


stabilized_gates = Operator(naive.stabilized_gates, {"cuda": "gyral.ops.stabilized_gates.triton"}, shapes=shapes)
