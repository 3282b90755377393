"""A linear recurrence with complex numbers whose matrix has one number in each column, h_t = P_t (a_t ⊙ h_{t−1}) + b_t.

P_t is a matrix of zeros and ones, which sends each number to one place; several may go to the same. Complex numbers are
pairs: N real parts, then N imaginary parts.
"""

from pathlib import Path
from typing import Any

from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.permutation_scan import naive
from gyral.ops.permutation_scan.naive import step

__all__ = ["permutation_scan", "step"]


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, matrices = a.selection.shape
    return {"steps": steps, "batch": batch, "size": a.dictionary.shape[1], "matrices": matrices}


KERNELS = Kernels(
    Path(__file__).with_name("permutation_scan.cpp"),
    sizes=sizes,
    results={"outputs": like("values"), "final": like("h0")},
    states={"h0": "final"},
    sums=("dictionary",),
)
permutation_scan = Operator(naive.permutation_scan, {"cpu": KERNELS})
