"""The rotation scan: a memory that is a product of rotations, whose planes depend on the inputs alone.

With H_w = I − 2wwᵀ:
R_t = R_{t−1} H_{w₂} H_{w₁},  h̃_t = f(ε_t + R_t q_t),  h_t = σ(u_t) ⊙ h_{t−1} + (1 − σ(u_t)) ⊙ h̃_t
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from gyral.core.checks import check_choice
from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product
from gyral.ops.native.kernels import Kernels, before_chunks, like
from gyral.ops.operator import Operator
from gyral.ops.rotation_scan import naive
from gyral.ops.rotation_scan.naive import CHUNK, merge, reflect, reflections, split
from gyral.ops.rum.naive import ACTIVATIONS

__all__ = ["merge", "reflect", "reflections", "rotation_scan", "split"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch = a.parts.shape[:2]
    _, size = check_shape("h0", a.h0, batch, "N")
    check_shape("parts", a.parts, steps, batch, 4 * size)
    _, heads, width, _ = check_shape("memory", a.memory, batch, "H", "d", a.memory.shape[-1])
    check_shape("memory", a.memory, batch, heads, width, width)
    if heads * width < size:
        raise InputError(f"memory has {heads} heads of {width} numbers, must have at least {size} numbers")
    check_choice("activation", a.activation, tuple(ACTIVATIONS))


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    batch, heads, width, _ = a.memory.shape
    return {
        "steps": len(a.parts),
        "batch": batch,
        "size": a.h0.shape[1],
        "heads": heads,
        "width": width,
        "chunk": CHUNK,
        "activation": list(ACTIVATIONS).index(a.activation),
    }


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products, of R with w₁, w₂ and q_t; see `gyral.ops.declaration.formulas_of`."""
    return 0, 3 * product(len(a.parts), a.memory)


def transpose(memory: Tensor) -> Tensor:
    """Return Rᵀ, which the kernel keeps."""
    return memory.mT.contiguous()


KERNELS = Kernels(
    Path(__file__).with_name("rotation_scan.cpp"),
    sizes=sizes,
    results={
        "outputs": lambda a: a.parts.new_empty(a.parts.shape[0], *a.h0.shape),
        "final_memory": like("memory"),
        "final_hidden": like("h0"),
    },
    kept={
        "kept_memory": lambda a: before_chunks(a.memory, a.parts.shape[0], CHUNK, *a.memory.shape),
        "kept_hidden": lambda a: before_chunks(a.h0, a.parts.shape[0], CHUNK, *a.h0.shape),
    },
    states={"memory": "final_memory", "h0": "final_hidden"},
    layouts={"memory": (transpose, lambda memory, _: memory.mT)},
)
LARGEST = 64  # d of the kernels of a GPU, whose programs have R in registers
rotation_scan = Operator(
    naive.rotation_scan,
    {"cpu": KERNELS, "cuda": "gyral.ops.rotation_scan.triton"},
    supports=lambda a: a.memory.device.type == "cpu" or a.memory.shape[-1] <= LARGEST,
    shapes=shapes,
    products=products,
)
