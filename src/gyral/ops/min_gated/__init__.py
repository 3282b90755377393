"""Recurrences with gates that do not read the state, h_t = a_t ⊙ h_{t−1} + b_t.

`min_gated` is minGRU or minLSTM (Feng et al., "Were RNNs all we needed?", 2024):
h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ g(c_t), with g(c) = c + ½ if c ≥ 0, else σ(c)
minGRU: z_t = σ(k_t);  minLSTM: z_t = σ(i_t) / (σ(f_t) + σ(i_t))

`rg_lru` is that of Griffin; see `gyral.cells.rg_lru`. `blend` is h_t = σ(u_t) ⊙ h_{t−1} + (1 − σ(u_t)) ⊙ f(c_t). These
two have kernels on a GPU alone; on a CPU they are functions of torch around `diagonal_scan`.
"""

from pathlib import Path
from typing import Any

import torch

from gyral.core.checks import check_choice
from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product
from gyral.ops.min_gated import naive
from gyral.ops.min_gated.naive import ACTIVATIONS, coefficients
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator

__all__ = ["blend", "coefficients", "min_gated", "rg_lru"]

TRITON = "gyral.ops.diagonal.triton"


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    _, batch, width = check_shape("projected", a.projected, *a.projected.shape[:2], "W")
    _, size = check_shape("h0", a.h0, batch, "N")
    if width not in (2 * size, 3 * size):
        raise InputError(
            f"projected has {width} columns, must have {2 * size} for a minGRU or {3 * size} for a minLSTM"
        )


def rg_lru_shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    _, batch, size = check_shape("inputs", a.inputs, *a.inputs.shape[:2], "N")
    _, heads, block, _ = check_shape("weight", a.weight, 2, "H", "b", a.weight.shape[-1])
    check_shape("weight", a.weight, 2, heads, block, block)
    if heads * block < size:
        raise InputError(f"weight has {heads} blocks of {block} units, must have at least {size} units")
    check_shape("bias", a.bias, 2, size)
    check_shape("decay", a.decay, size)
    check_shape("h0", a.h0, batch, size)
    check_shape("fresh", a.fresh, batch)


def blend_shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, size = check_shape("inputs", a.inputs, *a.inputs.shape[:2], "N")
    check_shape("gate", a.gate, steps, batch, size)
    check_shape("h0", a.h0, batch, size)
    check_choice("activation", a.activation, tuple(ACTIVATIONS))


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, width = a.projected.shape
    size = a.h0.shape[1]
    return {"steps": steps, "batch": batch, "size": size, "gates": width // size - 1}


KERNELS = Kernels(
    Path(__file__).with_name("min_gated.cpp"),
    sizes=sizes,
    results={"outputs": lambda a: a.projected.new_empty(*a.projected.shape[:2], a.h0.shape[1]), "final": like("h0")},
    states={"h0": "final"},
    gradients={"projected": like("projected")},
)
min_gated = Operator(naive.min_gated, {"cpu": KERNELS, "cuda": TRITON}, unread=1, shapes=shapes)
rg_lru = Operator(
    naive.rg_lru,
    {"cuda": f"{TRITON}.rg_lru"},
    constant=1,
    unread=2,
    shapes=rg_lru_shapes,
    dtypes={"fresh": torch.int64},
    products=lambda a: (product(len(a.inputs) * len(a.h0), a.weight), 0),
)
blend = Operator(naive.blend, {"cuda": TRITON}, unread=1, shapes=blend_shapes)
