"""M²RNN (2026, arXiv 2603.14360): a memory matrix with a nonlinear recurrence.

S_t = f_t S_{t−1} + (1 − f_t) tanh(S_{t−1} W + k_t v_tᵀ),  y_t = S_tᵀ q_t
"""

import math
from pathlib import Path
from typing import Any

from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product
from gyral.ops.m2rnn import naive
from gyral.ops.native.kernels import Kernels, before_chunks, like
from gyral.ops.operator import Operator

__all__ = ["LARGEST_VALUE", "m2rnn"]


CHUNK = 32  # steps; with the default sizes, the kept memories then take no more space than the projected inputs


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, groups, key = check_shape("q", a.q, *a.q.shape[:2], "G", "K")
    check_shape("k", a.k, steps, batch, groups, key)
    *_, heads, value = check_shape("v", a.v, steps, batch, "H", "V")
    if heads % groups:
        raise InputError(f"q has {groups} heads, must have a divisor of the {heads} heads of v")
    check_shape("forget", a.forget, steps, batch, heads)
    check_shape("weight", a.weight, heads, value, value)
    check_shape("s0", a.s0, batch, heads, key, value)


def sizes(a: Any) -> dict[str, int | float]:
    """Return the numbers that the kernel takes."""
    steps, batch, heads, value = a.v.shape
    groups, key = a.q.shape[2:]
    return {
        "steps": steps,
        "batch": batch * groups,
        "groups": groups,
        "heads": heads // groups,
        "key": key,
        "value": value,
        "chunk": CHUNK,
        "clip": math.inf if a.clip is None else a.clip,
    }


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    return 0, product(len(a.q) * len(a.s0) * a.s0.shape[2], a.weight)


KERNELS = Kernels(
    Path(__file__).with_name("m2rnn.cpp"),
    sizes=sizes,
    results={"outputs": like("v"), "final": like("s0")},
    kept={"kept": lambda a: before_chunks(a.s0, a.v.shape[0], CHUNK, *a.s0.shape)},
    states={"s0": "final"},
    gradients={"weight": lambda a: a.weight.new_empty(a.s0.shape[0], *a.weight.shape)},
)
LARGEST_VALUE = 64  # columns of a memory for the kernels for a GPU, whose programs have all of W
m2rnn = Operator(
    naive.m2rnn,
    {"cpu": KERNELS, "cuda": "gyral.ops.m2rnn.triton"},
    supports=lambda a: a.v.device.type == "cpu" or a.v.shape[-1] <= LARGEST_VALUE,
    shapes=shapes,
    products=products,
)
