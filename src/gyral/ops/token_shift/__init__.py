"""The token shift of RWKV-7: six mixes of each value with the one before it.

    x^c_t = x_t + μ_c ⊙ (x_{t−1} − x_t)                               c = 1 … 6

RWKV-7: Peng et al., "RWKV-7 'Goose' with expressive dynamic state evolution", 2025, section 4. The operator has a
kernel on a CPU alone; elsewhere it is functions of torch.
"""

from pathlib import Path
from typing import Any

from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.token_shift import naive
from gyral.ops.token_shift.naive import MIXES, mixed

__all__ = ["MIXES", "mixed", "token_shift"]


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    _, batch, channels = check_shape("values", a.values, *a.values.shape[:2], "C")
    check_shape("mix", a.mix, MIXES, channels)
    check_shape("before", a.before, batch, channels)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, channels = a.values.shape
    return {"steps": steps, "batch": batch, "channels": channels}


RESULTS = tuple(f"mixed{index + 1}" for index in range(MIXES))
KERNELS = Kernels(
    Path(__file__).with_name("token_shift.cpp"),
    sizes=sizes,
    results=dict.fromkeys(RESULTS, like("values")),
    gradients={"values": like("values")},
    sums=("mix",),
    optional=RESULTS,
)
token_shift = Operator(naive.token_shift, {"cpu": KERNELS}, unread=MIXES - 1, shapes=shapes)
