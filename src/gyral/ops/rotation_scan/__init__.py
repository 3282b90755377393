"""The rotation scan: a memory that is a product of rotations, whose planes depend on the inputs alone.

With H_w = I − 2wwᵀ:
R_t = R_{t−1} H_{w₂} H_{w₁},  h̃_t = f(ε_t + R_t q_t),  h_t = σ(u_t) ⊙ h_{t−1} + (1 − σ(u_t)) ⊙ h̃_t
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.rotation_scan import naive
from gyral.ops.rotation_scan.naive import CHUNK, merge, reflect, reflections, split
from gyral.ops.rum.naive import ACTIVATIONS

__all__ = ["merge", "reflect", "reflections", "rotation_scan", "split"]


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


def transpose(memory: Tensor) -> Tensor:
    """Return Rᵀ, which the kernel keeps."""
    return memory.mT.contiguous()


def before_chunks(name: str) -> Callable[[Any], Tensor]:
    """Return a function that allocates a state before each chunk of steps."""
    return lambda a: getattr(a, name).new_empty(-(-len(a.parts) // CHUNK), *getattr(a, name).shape)


KERNELS = Kernels(
    Path(__file__).with_name("rotation_scan.cpp"),
    sizes=sizes,
    results={
        "outputs": lambda a: a.parts.new_empty(len(a.parts), *a.h0.shape),
        "final_memory": like("memory"),
        "final_hidden": like("h0"),
    },
    kept={"kept_memory": before_chunks("memory"), "kept_hidden": before_chunks("h0")},
    states={"memory": "final_memory", "h0": "final_hidden"},
    layouts={"memory": (transpose, lambda memory, _: memory.mT)},
)
rotation_scan = Operator(naive.rotation_scan, {"cpu": KERNELS})
