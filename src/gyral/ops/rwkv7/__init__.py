"""The memory of RWKV-7 for given products of its inputs: decays and rates, the recurrence, and the gated outputs.

    γ = −e^{−½} σ(w),  α = σ(a),  κ = (k ⊙ k_k) / ‖k ⊙ k_k‖,  k̄ = k ⊙ (1 + (α − 1) ⊙ k_a)
    S ← e^γ ⊙ S − (α ⊙ κ) (Sᵀ κ)ᵀ + k̄ vᵀ                          for each head; κ reads the memory before the decay
    y = (LN(Sᵀ r) + (Σ r ⊙ k̄ ⊙ r_k) v) ⊙ g

RWKV-7: Peng et al., "RWKV-7 'Goose' with expressive dynamic state evolution", 2025, section 4. The operator has a
kernel on a CPU alone; elsewhere it is `gyral.ops.delta` and functions of torch.
"""

from pathlib import Path
from typing import Any

from gyral.ops.declaration import check_shape, product
from gyral.ops.native.kernels import Kernels, before_chunks, like
from gyral.ops.operator import Operator
from gyral.ops.rwkv7 import naive

__all__ = ["rwkv7"]

CHUNK = 16  # steps between the memories that are kept for the backward pass; as in rwkv7.cpp
WIDEST = 16  # numbers in a register, at most

SEQUENCES = "r", "w", "k", "v", "a", "gate"
VECTORS = "k_k", "k_a", "gain", "bias"


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    heads, size = check_shape("r_k", a.r_k, "H", "V")
    steps, batch, width = check_shape("r", a.r, *a.r.shape[:2], heads * size)
    for name in SEQUENCES[1:]:
        check_shape(name, getattr(a, name), steps, batch, width)
    for name in VECTORS:
        check_shape(name, getattr(a, name), width)
    check_shape("s0", a.s0, batch, heads, size, size)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, rows, _ = a.r.shape
    heads, size = a.r_k.shape
    return {"steps": steps, "batch": rows * heads, "heads": heads, "size": size, "kept_row": kept_row(a)}


def kept_row(a: Any) -> int:
    """Return the numbers of a row of a memory with zeros behind it."""
    return -(-int(a.r_k.shape[1]) // WIDEST) * WIDEST


def of_rows(name: str) -> Any:
    """Return a function that allocates the gradient of a parameter for each row of the batch."""
    return lambda a: getattr(a, name).new_empty(a.r.shape[1], *getattr(a, name).shape)


KERNELS = Kernels(
    Path(__file__).with_name("rwkv7.cpp"),
    sizes=sizes,
    results={"outputs": like("r"), "final": like("s0")},
    kept={
        "read": like("r"),
        "erased": like("r"),
        "kept": lambda a: before_chunks(a.s0, a.r.shape[0], CHUNK, *a.s0.shape[:3], kept_row(a)),
    },
    states={"s0": "final"},
    gradients={
        **{name: like(name) for name in SEQUENCES},
        **{name: of_rows(name) for name in (*VECTORS, "r_k")},
    },
    optional=("outputs",),
)
rwkv7 = Operator(
    naive.rwkv7,
    {"cpu": KERNELS},
    unread=1,
    shapes=shapes,
    products=lambda a: (0, 3 * product(len(a.r), a.s0)),  # those of the loop of `gyral.ops.delta`
)
