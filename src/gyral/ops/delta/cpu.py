"""The kernels of `gyral.ops.delta` for the CPU: delta.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("delta.cpp"))
prepare = KERNEL.prepare
VECTOR_CHUNK = 16  # micro-steps of a chunk with a decay of each key channel
# The same with one decay for a memory, by the largest size K · V: each chunk reads and keeps a memory, which takes more
# time than pairs of micro-steps if the memory is large. Measured with K and V from 32 to 128.
SCALAR_CHUNKS = ((1024, 16), (2048, 32))
LARGEST_CHUNK = 64


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, H, V) and final memory; and the memories (chunks, B, H, K, V) before every chunk."""
    steps, batch, _, heads, value = a.v.shape
    kept = a.s0.new_empty(-(-steps // _chunk(a)), *a.s0.shape)
    return [a.v.new_empty(steps, batch, heads, value), torch.empty_like(a.s0)], [kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, final = results
    _run(a, saved[0], backward=False, outputs=outputs, final=final)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_outputs, grad_final = gradients
    if grad_outputs is None:
        grad_outputs = torch.zeros_like(results[0])
    grad_s0 = torch.zeros_like(a.s0) if grad_final is None else grad_final.clone()  # the kernel overwrites it
    found = {"q": a.q, "k": a.k, "v": a.v, "decay": a.decay, "erase": a.erase, "write": a.write}
    found = {name: None if tensor is None else torch.empty_like(tensor) for name, tensor in found.items()}
    found["s0"] = grad_s0
    further = {f"grad_{name}": tensor for name, tensor in found.items()}
    _run(a, saved[0], backward=True, grad_outputs=grad_outputs, **further)
    return found


def _run(a: Any, kept: Tensor, *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, micro, heads, value = a.v.shape
    groups, key = a.q.shape[2:]
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch * groups,
        groups=groups,
        heads=heads // groups,
        micro=micro,
        key=key,
        value=value,
        chunk=_chunk(a),
        decays=0 if a.decay is None else a.decay.shape[3:].numel(),
        rates=a.erase is not None and a.erase.dim() == 4,
        unit=a.unit,
        q=a.q,
        k=a.k,
        v=a.v,
        s0=a.s0,
        decay=a.decay,
        erase=a.erase,
        write=a.write,
        lengths=a.lengths,
        starts=a.starts,
        kept=kept,
        **further,
    )


def _chunk(a: Any) -> int:
    """Return the number of steps of a chunk."""
    key, value = a.s0.shape[2:]
    fitting = (count for size, count in SCALAR_CHUNKS if key * value <= size)
    is_vector = a.decay is not None and a.decay.dim() == 4
    count = VECTOR_CHUNK if is_vector else next(fitting, LARGEST_CHUNK)
    return max(1, count // int(a.v.shape[2]))
