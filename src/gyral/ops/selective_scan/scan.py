"""The operator of the selective scan; see `gyral.ops.selective_scan.naive`."""

from pathlib import Path
from typing import Any

from torch import Tensor

from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, before_chunks, like
from gyral.ops.operator import Operator
from gyral.ops.selective_scan import naive

CHUNK = 16  # steps between the states that are kept


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    steps, batch, channels = check_shape("u", a.u, *a.u.shape[:2], "D")
    check_shape("delta", a.delta, steps, batch, channels)
    _, size = check_shape("a", a.a, channels, "N")
    check_shape("b", a.b, steps, batch, size)
    check_shape("c", a.c, steps, batch, size)
    check_shape("h0", a.h0, batch, channels, size)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, channels = a.u.shape
    return {"steps": steps, "batch": batch, "channels": channels, "size": a.a.shape[1], "chunk": CHUNK}


def transpose(tensor: Tensor) -> Tensor:
    """Return (…, N, D) for (…, D, N)."""
    return tensor.mT.contiguous()


KERNELS = Kernels(
    Path(__file__).with_name("selective_scan.cpp"),
    sizes=sizes,
    results={"outputs": like("u"), "final": like("h0")},
    kept={"kept": lambda a: before_chunks(a.u, a.u.shape[0], CHUNK, *a.h0.shape)},
    states={"h0": "final"},
    sums=("a",),
    layouts=dict.fromkeys(("a", "h0"), (transpose, lambda tensor, _: tensor.mT)),
)
selective_scan = Operator(naive.selective_scan, {"cpu": KERNELS}, shapes=shapes)
