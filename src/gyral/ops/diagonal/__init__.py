"""Linear recurrences whose matrix is diagonal, h_t = a_t ⊙ h_{t−1} + b_t, real or complex.

`diagonal_scan` is the recurrence. `state_space` is a whole layer around it, whose a_t is constant: products, scan and
readout. It has kernels on a GPU alone; on a CPU it is functions of torch around `diagonal_scan`.
"""

from typing import Any

from gyral.core.checks import check_choice
from gyral.ops.declaration import check_shape, product
from gyral.ops.diagonal import layer
from gyral.ops.diagonal.naive import multiply
from gyral.ops.diagonal.scan import diagonal_scan
from gyral.ops.operator import Operator

__all__ = ["diagonal_scan", "multiply", "state_space"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    _, batch, width = check_shape("inputs", a.inputs, *a.inputs.shape[:2], "N")
    _, size, _ = check_shape("drive", a.drive, 2, "P", width)
    check_shape("readout", a.readout, 2, width, size)
    check_shape("skip", a.skip, width)
    for name in ("rate", "frequency", "scale"):
        check_shape(name, getattr(a, name), size)
    check_shape("h0", a.h0, batch, 2 * size)
    check_choice("kind", a.kind, layer.KINDS)


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    rows = len(a.inputs) * len(a.h0)
    return product(rows, a.drive), product(rows, a.readout)


KERNELS = {"cuda": "gyral.ops.diagonal.triton.layer"}
state_space = Operator(layer.state_space, KERNELS, unread=2, shapes=shapes, products=products)
