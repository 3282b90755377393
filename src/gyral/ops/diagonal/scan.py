"""The operator of a diagonal linear recurrence; see `gyral.ops.diagonal.naive`."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape
from gyral.ops.diagonal import naive
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, width = check_shape("values", a.values, *a.values.shape[:2], "W")
    if a.is_complex and width % 2:
        raise InputError(f"values have {width} columns, must have an even number for complex numbers")
    check_shape("decay", a.decay, *((width,) if a.decay.dim() == 1 else (steps, batch, width)))
    check_shape("h0", a.h0, batch, width)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, width = a.values.shape
    return {"steps": steps, "batch": batch, "width": width, "is_constant": a.decay.dim() == 1}


def decay_gradient(a: Any) -> Tensor:
    """Return where the kernel writes the gradient of the decay; of a constant one, a partial sum for each row."""
    return torch.zeros_like(a.h0) if a.decay.dim() == 1 else torch.empty_like(a.decay)


KERNELS = Kernels(
    Path(__file__).with_name("diagonal.cpp"),
    sizes=sizes,
    results={"outputs": like("values"), "final": like("h0")},
    states={"h0": "final"},
    gradients={"values": like("values"), "decay": decay_gradient},
    optional=("decay",),
)
diagonal_scan = Operator(
    naive.diagonal_scan, {"cpu": KERNELS, "cuda": "gyral.ops.diagonal.triton"}, unread=1, shapes=shapes
)
