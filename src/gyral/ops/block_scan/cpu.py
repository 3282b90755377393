"""The kernels of `gyral.ops.block_scan` for the CPU: block_scan.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("block_scan.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, N) and final state (B, N); nothing is saved."""
    return [torch.empty_like(a.values), torch.empty_like(a.h0)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(a, results[0], backward=False, final=results[1])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_hidden = torch.zeros_like(a.h0) if gradients[1] is None else gradients[1].clone()  # the kernel overwrites it
    found = {"change": torch.empty_like(a.change), "values": torch.zeros_like(a.values)}
    further = {f"grad_{name}": tensor for name, tensor in found.items()}
    _run(a, results[0], backward=True, grad_outputs=gradients[0], grad_hidden=grad_hidden, **further)
    return {**found, "h0": grad_hidden}


def _run(a: Any, outputs: Tensor, *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, size, block = a.change.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        size=size,
        block=block,
        change=a.change,
        values=a.values,
        hidden=a.h0,
        is_first=a.is_first,
        lengths=a.lengths,
        outputs=outputs,
        **further,
    )
