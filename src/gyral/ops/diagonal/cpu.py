"""The kernels of `gyral.ops.diagonal` for the CPU: diagonal.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("diagonal.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, W) and final state (B, W); nothing is saved."""
    return [torch.empty_like(a.values), torch.empty_like(a.h0)], []


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    _run(a, results, backward=False)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    grad_values = torch.empty_like(a.values)
    grad_h0 = torch.zeros_like(a.h0) if gradients[1] is None else gradients[1].clone()  # the kernel overwrites it
    is_constant = a.decay.dim() == 1
    grad_decay = None
    if needs["decay"]:  # for a constant, one partial sum a row: it does not depend on the number of threads
        grad_decay = torch.zeros_like(a.h0) if is_constant else torch.empty_like(a.decay)
    further = {"grad_outputs": gradients[0], "grad_values": grad_values, "grad_decay": grad_decay}
    _run(a, results, backward=True, grad_hidden=grad_h0, **further)
    if grad_decay is not None and is_constant:
        grad_decay = grad_decay.sum(0)
    return {"values": grad_values, "decay": grad_decay, "h0": grad_h0}


def _run(a: Any, results: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, width = a.values.shape
    outputs, final = results
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        width=width,
        is_complex=a.is_complex,
        is_constant=a.decay.dim() == 1,
        values=a.values,
        decay=a.decay,
        hidden=a.h0,
        lengths=a.lengths,
        starts=a.starts,
        outputs=outputs,
        final=final,
        **further,
    )
