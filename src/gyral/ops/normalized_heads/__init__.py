"""The outputs of mLSTM's memory: values divided by their norm, and normalized in each head.

    h = c / (max(|n|, e^{−m}) + 10⁻⁶),  y = (h − mean h) / √(var h + ε)

mLSTM: Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, equation 21. The operator has kernels on a
GPU alone; on a CPU it is functions of torch.
"""

from typing import Any

from gyral.ops.declaration import check_shape
from gyral.ops.normalized_heads import naive
from gyral.ops.normalized_heads.naive import divide
from gyral.ops.operator import Operator

__all__ = ["divide", "normalized_heads"]

LARGEST = 1024  # numbers of a head, which a program of the kernels has in registers


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    *leading, _ = check_shape("outputs", a.outputs, *a.outputs.shape[:2], "H", "V + 1")
    check_shape("least", a.least, *leading)


normalized_heads = Operator(
    naive.normalized_heads,
    {"cuda": "gyral.ops.normalized_heads.triton"},
    supports=lambda a: a.outputs.shape[-1] <= LARGEST,
    shapes=shapes,
)
