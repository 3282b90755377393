"""The delta rule: a memory matrix that forgets, erases what a key reads, and writes a value (Schlag, Irie and
Schmidhuber, "Linear transformers are secretly fast weight programmers", ICML 2021), in the form that also covers
gated linear attention, state spaces and products of several such steps.

A step decays the memory S (K, V) of a head, then takes n micro-steps, and reads:

    S ← e^{γ_t} ⊙ S                                     γ_t ≤ 0 for the whole memory, or for each of its K rows
    S ← S + k̂_{t,j} (w_{t,j} v_{t,j} − Sᵀ r_{t,j})ᵀ      j = 1 … n
    y_t = Sᵀ q̂_t

Here k̂ = k and q̂ = q, or unit vectors k̂ = k / √(Σ k² + 10⁻⁶) and q̂ = q / √(K (Σ q² + 10⁻⁶)); w is 1 or a rate of
writing; r = e k̂ with a rate of erasing e, or any vector, or zero. With e = w = β and unit vectors this is the delta
rule with rate β; without r it is linear attention.
"""

from pathlib import Path
from typing import Any

from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product
from gyral.ops.delta import naive
from gyral.ops.delta.naive import delta_step, to_unit
from gyral.ops.native.kernels import Kernels, before_chunks, like
from gyral.ops.operator import Operator

__all__ = ["delta_scan", "delta_step", "to_unit"]


VECTOR_CHUNK = 16  # micro-steps of a chunk with a decay of each key channel
# The same with one decay for a memory, by the largest size K · V: each chunk reads and keeps a memory, which takes more
# time than pairs of micro-steps if the memory is large. Measured with K and V from 32 to 128.
SCALAR_CHUNKS = ((1024, 16), (2048, 32))
LARGEST_CHUNK = 64


def chunk_size(a: Any) -> int:
    """Return the number of steps of a chunk."""
    key, value = a.s0.shape[2:]
    count = LARGEST_CHUNK
    if a.decay is not None and a.decay.dim() == 4:
        count = VECTOR_CHUNK
    else:
        for size, fitting in reversed(SCALAR_CHUNKS):
            count = fitting if key * value <= size else count
    return max(1, count // int(a.v.shape[2]))


def shapes(a: Any) -> None:
    """Check the shapes; see `gyral.ops.declaration.Checks`."""
    steps, batch, groups, key = check_shape("q", a.q, *a.q.shape[:2], "G", "K")
    _, _, micro, *_ = check_shape("k", a.k, steps, batch, "n", groups, key)
    *_, heads, value = check_shape("v", a.v, steps, batch, micro, "H", "V")
    if heads % groups:
        raise InputError(f"q has {groups} heads, must have a divisor of the {heads} heads of v")
    check_shape("s0", a.s0, batch, heads, key, value)
    if a.decay is not None:
        check_shape("decay", a.decay, steps, batch, heads, *([key] if a.decay.dim() == 4 else []))
    if a.erase is not None:
        check_shape("erase", a.erase, steps, batch, micro, groups, *([key] if a.erase.dim() == 5 else []))
    check_shape("write", a.write, steps, batch, micro, heads)


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    steps, batch, micro, heads, value = a.v.shape
    groups, key = a.q.shape[2:]
    return {
        "steps": steps,
        "batch": batch * groups,
        "groups": groups,
        "heads": heads // groups,
        "micro": micro,
        "key": key,
        "value": value,
        "chunk": chunk_size(a),
        "decays": 0 if a.decay is None else a.decay.shape[3:].numel(),
        "rates": a.erase is not None and a.erase.dim() == 4,
    }


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products, those of `delta_step`; see `gyral.ops.declaration.formulas_of`.

    The chunks of kernels have others, which depend on their size.
    """
    reads = 1 if a.erase is None else 1 + a.k.shape[2]
    return 0, reads * product(len(a.q), a.s0)


KERNELS = Kernels(
    Path(__file__).with_name("delta.cpp"),
    sizes=sizes,
    results={"outputs": lambda a: a.v.new_empty(*a.v.shape[:2], *a.v.shape[3:]), "final": like("s0")},
    kept={"kept": lambda a: before_chunks(a.s0, a.v.shape[0], chunk_size(a), *a.s0.shape)},
    states={"s0": "final"},
    gradients={name: like(name) for name in ("q", "k", "v", "decay", "erase", "write")},
)
LARGEST_KEY = 256  # of the kernels for a GPU, which keep columns of a memory in registers
delta_scan = Operator(
    naive.delta_scan,
    {"cpu": KERNELS, "cuda": "gyral.ops.delta.triton"},
    supports=lambda a: a.q.device.type == "cpu" or a.q.shape[-1] <= LARGEST_KEY,
    shapes=shapes,
    products=products,
)
