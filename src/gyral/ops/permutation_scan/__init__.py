"""A linear recurrence with complex numbers whose matrix has one number in each column, h_t = P_t (a_t ⊙ h_{t−1}) + b_t.

P_t is a matrix of zeros and ones, which sends each number to one place; several may go to the same. Complex numbers are
pairs: N real parts, then N imaginary parts.
"""

from pathlib import Path
from typing import Any

from gyral.ops.declaration import check_shape, product
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.permutation_scan import naive
from gyral.ops.permutation_scan.naive import step

__all__ = ["permutation_scan", "step"]

# What a program has in registers: numbers of a state, and numbers of a column of all matrices.
LARGEST_ON_GPU, LARGEST_COLUMN_ON_GPU = 128, 4096


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    steps, batch, matrices = check_shape("selection", a.selection, *a.selection.shape[:2], "K")
    _, size, _ = check_shape("dictionary", a.dictionary, matrices, "N", "N")
    check_shape("dictionary", a.dictionary, matrices, size, size)
    check_shape("decay", a.decay, steps, batch, 2 * size)
    check_shape("values", a.values, steps, batch, 2 * size)
    check_shape("h0", a.h0, batch, 2 * size)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, matrices = a.selection.shape
    return {"steps": steps, "batch": batch, "size": a.dictionary.shape[1], "matrices": matrices}


def supports(a: Any) -> bool:
    """Return whether the kernels support the sizes; those of a CPU support all."""
    matrices, size = a.dictionary.shape[:2]
    is_small = size <= LARGEST_ON_GPU and matrices * size <= LARGEST_COLUMN_ON_GPU
    return a.values.device.type == "cpu" or is_small


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products at each step; see `gyral.ops.declaration.formulas_of`.

    They are the sum of the matrices of the dictionary, and the product whose gradient is that of the softmax.
    """
    rows = len(a.selection) * len(a.h0)
    return product(rows, a.dictionary), 2 * product(rows, a.dictionary[0])


KERNELS = Kernels(
    Path(__file__).with_name("permutation_scan.cpp"),
    sizes=sizes,
    results={"outputs": like("values"), "final": like("h0")},
    states={"h0": "final"},
    sums=("dictionary",),
)
permutation_scan = Operator(
    naive.permutation_scan,
    {"cpu": KERNELS, "cuda": "gyral.ops.permutation_scan.triton"},
    supports=supports,
    shapes=shapes,
    products=products,
)
