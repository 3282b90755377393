"""The kernels of `gyral.ops.rotation_scan` for the CPU: rotation_scan.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.rotation_scan.naive import CHUNK
from gyral.ops.rum.naive import ACTIVATIONS

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("rotation_scan.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, N), R (B, H, d, d) and h (B, N); and the states before some of the steps.

    These are Rᵀ (T / 64, B, H, d, d) and h (T / 64, B, N).
    """
    steps, (batch, size) = len(a.parts), a.h0.shape
    chunks = -(-steps // CHUNK)
    results = [a.parts.new_empty(steps, batch, size), torch.empty_like(a.memory), torch.empty_like(a.h0)]
    return results, [a.memory.new_empty(chunks, *a.memory.shape), a.h0.new_empty(chunks, batch, size)]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, final, hidden = results
    memory = a.memory.mT.contiguous()  # the kernel overwrites it, and the hidden vector
    hidden.copy_(a.h0)
    _run(a, saved, backward=False, memory=memory, hidden=hidden, outputs=outputs)
    final.copy_(memory.mT)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_memory, grad_hidden = torch.zeros_like(a.memory), torch.zeros_like(a.h0)
    for own, final in ((grad_memory, gradients[1]), (grad_hidden, gradients[2])):
        if final is not None:
            own.copy_(final if own is grad_hidden else final.mT)
    grad_parts = torch.zeros_like(a.parts)
    further = {"grad_memory": grad_memory, "grad_hidden": grad_hidden, "grad_parts": grad_parts}
    _run(a, saved, backward=True, grad_outputs=gradients[0], **further)
    return {"parts": grad_parts, "memory": grad_memory.mT, "h0": grad_hidden}


def _run(a: Any, saved: list[Tensor], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel. Memories are transposed."""
    heads, width = a.memory.shape[1:3]
    KERNEL.run(
        backward=backward,
        steps=len(a.parts),
        batch=len(a.h0),
        size=a.h0.shape[1],
        heads=heads,
        width=width,
        chunk=CHUNK,
        double_angle=a.double_angle,
        activation=list(ACTIVATIONS).index(a.activation),
        parts=a.parts,
        lengths=a.lengths,
        starts=a.starts,
        kept_memory=saved[0],
        kept_hidden=saved[1],
        **further,
    )
