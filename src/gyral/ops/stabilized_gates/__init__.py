"""The exponential gates of mLSTM, of all steps at once: their stabilizer, and what is left of memory and inputs.

    m_t = max(log σ(f_t) + m_{t−1}, i_t),  decay_t = log σ(f_t) + m_{t−1} − m_t,  write_t = scale e^{i_t − m_t}

with which the memory becomes e^{decay_t} times the memory plus write_t times what is new.

mLSTM: Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, equations 23 to 27.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.stabilized_gates import naive
from gyral.ops.stabilized_gates.naive import NEVER

__all__ = ["NEVER", "stabilized_gates"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    steps, batch = a.gates.shape[:2]
    _, heads = check_shape("first", a.first, batch, "H")
    check_shape("gates", a.gates, steps, batch, 2 * heads)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch = a.gates.shape[:2]
    return {"steps": steps, "batch": batch, "heads": a.first.shape[1]}


def heads_of_steps(a: Any) -> Tensor:
    """Allocate a result (T, B, H)."""
    return a.gates.new_empty(*a.gates.shape[:2], a.first.shape[1])


RESULTS = "decay", "write", "least", "stabilizers"
KERNELS = Kernels(
    Path(__file__).with_name("stabilized_gates.cpp"),
    sizes=sizes,
    results=dict.fromkeys(RESULTS, heads_of_steps),
    gradients={"gates": like("gates")},
    optional=RESULTS,
)
stabilized_gates = Operator(
    naive.stabilized_gates, {"cpu": KERNELS, "cuda": "gyral.ops.stabilized_gates.triton"}, shapes=shapes
)
