"""The kernels of `gyral.ops.selective_scan` for the CPU: selective_scan.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("selective_scan.cpp"))
prepare = KERNEL.prepare
CHUNK = 16  # steps between the states that are kept


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, D) and final state (B, D, N); and the states (T / 16, B, N, D) before some of the steps."""
    steps, batch, channels = a.u.shape
    kept = a.u.new_empty(-(-steps // CHUNK), batch, a.a.shape[1], channels)
    return [torch.empty_like(a.u), torch.empty_like(a.h0)], [kept]


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, final = results
    hidden = a.h0.mT.contiguous()  # the kernel overwrites it
    _run(a, saved[0], backward=False, hidden=hidden, outputs=outputs)
    final.copy_(hidden.mT)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    batch, channels, size = a.h0.shape
    grad_hidden = a.h0.new_zeros(batch, size, channels)  # before it that of the final state
    if gradients[1] is not None:
        grad_hidden.copy_(gradients[1].mT)
    grad_a = torch.zeros_like(grad_hidden)  # a partial sum for each row: it does not depend on the number of threads
    found = {"u": a.u, "delta": a.delta, "b": a.b, "c": a.c}
    found = {name: torch.zeros_like(tensor) for name, tensor in found.items()}
    if gradients[0] is None:
        gradients = [torch.zeros_like(a.u), None]
    further = {f"grad_{name}": tensor for name, tensor in found.items()}
    _run(a, saved[0], backward=True, grad_outputs=gradients[0], grad_hidden=grad_hidden, grad_a=grad_a, **further)
    return {**found, "a": grad_a.sum(0).T, "h0": grad_hidden.mT}


def _run(a: Any, kept: Tensor, *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel. States are (…, N, D)."""
    steps, batch, channels = a.u.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        channels=channels,
        size=a.a.shape[1],
        chunk=CHUNK,
        u=a.u,
        delta=a.delta,
        a=a.a.T.contiguous(),
        b=a.b,
        c=a.c,
        lengths=a.lengths,
        starts=a.starts,
        kept=kept,
        **further,
    )
