"""A linear recurrence whose matrix is block-diagonal, h_t = h_{t−1} + A_t h_{t−1}, with blocks of b × b numbers."""

from pathlib import Path
from typing import Any

import torch

from gyral.ops.block_scan import naive
from gyral.ops.block_scan.naive import step
from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.sequences import mark_first

__all__ = ["block_scan", "step"]

LARGEST_ON_GPU = 128  # units of a block whose matrix is in the registers of a program


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    steps, batch, size, _ = check_shape("change", a.change, *a.change.shape[:2], "N", "b")
    check_shape("values", a.values, 1 if a.starts is None else steps, batch, size)
    check_shape("h0", a.h0, batch, size)
    check_shape("fresh", a.fresh, batch)


def sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes, and which steps are the first ones of segments."""
    numbers = dict(zip(("steps", "batch", "size", "block"), a.change.shape, strict=True))
    return {**numbers, "is_first": mark_first(a.starts, a.fresh > 0, len(a.change))}


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products, one of A_t and h at each step; see `gyral.ops.declaration.formulas_of`."""
    size, block = a.change.shape[2:]
    return 0, 2 * len(a.change) * len(a.h0) * -(-size // block) * block**2


KERNELS = Kernels(
    Path(__file__).with_name("block_scan.cpp"),
    sizes=sizes,
    results={"outputs": lambda a: a.h0.new_empty(a.change.shape[0], *a.h0.shape), "final": like("h0")},
    states={"h0": "final"},
    gradients={"change": like("change")},
)
block_scan = Operator(
    naive.block_scan,
    {"cpu": KERNELS, "cuda": "gyral.ops.block_scan.triton"},
    supports=lambda a: a.change.device.type == "cpu" or a.change.shape[3] <= LARGEST_ON_GPU,
    shapes=shapes,
    dtypes={"fresh": torch.int64},
    products=products,
)
