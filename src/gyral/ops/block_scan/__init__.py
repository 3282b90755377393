"""A linear recurrence whose matrix is block-diagonal, h_t = h_{t−1} + A_t h_{t−1}, with blocks of b × b numbers."""

from pathlib import Path
from typing import Any

from gyral.ops.block_scan import naive
from gyral.ops.block_scan.naive import step
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator

__all__ = ["block_scan", "step"]


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    return dict(zip(("steps", "batch", "size", "block"), a.change.shape, strict=True))


KERNELS = Kernels(
    Path(__file__).with_name("block_scan.cpp"),
    sizes=sizes,
    results={"outputs": like("values"), "final": like("h0")},
    states={"h0": "final"},
    gradients={"change": like("change")},
)
block_scan = Operator(naive.block_scan, {"cpu": KERNELS})
