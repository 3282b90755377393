"""The kernels of `gyral.ops.permutation_scan` for the CPU: permutation_scan.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("permutation_scan.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs (T, B, 2N) and final state (B, 2N); nothing is saved."""
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
    found = {"selection": a.selection, "decay": a.decay, "values": a.values}
    found = {name: torch.zeros_like(tensor) for name, tensor in found.items()}
    # a partial sum for each row: it does not depend on the number of threads
    found["dictionary"] = a.dictionary.new_zeros(len(a.h0), *a.dictionary.shape)
    further = {f"grad_{name}": tensor for name, tensor in found.items()}
    _run(a, results[0], backward=True, grad_outputs=gradients[0], grad_hidden=grad_hidden, **further)
    return {**found, "dictionary": found["dictionary"].sum(0), "h0": grad_hidden}


def _run(a: Any, outputs: Tensor, *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, matrices = a.selection.shape
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        size=a.dictionary.shape[1],
        matrices=matrices,
        selection=a.selection,
        dictionary=a.dictionary,
        decay=a.decay,
        values=a.values,
        hidden=a.h0,
        lengths=a.lengths,
        starts=a.starts,
        outputs=outputs,
        **further,
    )
