"""The kernels of `gyral.ops.min_gated` for the CPU: min_gated.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("min_gated.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, N) and final state (B, N); nothing is saved."""
    outputs = a.projected.new_empty(*a.projected.shape[:2], a.h0.shape[1])
    return [outputs, torch.empty_like(a.h0)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(a, results, backward=False)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_projected = torch.empty_like(a.projected)
    grad_h0 = torch.zeros_like(a.h0) if gradients[1] is None else gradients[1].clone()  # the kernel overwrites it
    _run(
        a,
        results,
        backward=True,
        grad_outputs=gradients[0],
        grad_projected=grad_projected,
        grad_hidden=grad_h0,
    )
    return {"projected": grad_projected, "h0": grad_h0}


def _run(a: Any, results: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    outputs, final = results
    steps, batch, size = outputs.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        size=size,
        gates=a.projected.shape[2] // size - 1,
        projected=a.projected,
        hidden=a.h0,
        lengths=a.lengths,
        starts=a.starts,
        outputs=outputs,
        final=final,
        **further,
    )
