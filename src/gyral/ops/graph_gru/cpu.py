"""The kernels of `gyral.ops.graph_gru` for the CPU: graph_gru.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.sequences import project, project_backward

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("graph_gru.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: parts (T, B, 3N), gathered vectors (T, B, G), kept part of the product (T, B, N).

    The kept part is the recurrent product of the candidate.
    """
    steps, batch, _ = a.x.shape
    units, new = a.memory.shape[2], a.x.new_empty
    saved = [new(steps, batch, width) for width in (3 * units, a.w_hh.shape[1], units)]
    return [new(steps, batch, units), new(batch, a.capacity, units)], saved


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    outputs, final_memory = results
    project(a.x, a.w_ih, a.b, out=saved[0])
    _run(a, outputs, saved, backward=False, final_memory=final_memory)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs, _ = results
    grad_outputs, grad_final = gradients
    # the kernel sums the gradients of the hidden vectors in `history`
    history = torch.zeros_like(outputs) if grad_outputs is None else grad_outputs.clone()
    grad_memory = torch.zeros_like(a.memory) if needs["memory"] else None
    _run(
        a,
        outputs,
        saved,
        backward=True,
        history=history,
        grad_final_memory=grad_final,
        grad_memory=grad_memory,
    )
    parts, gathered, kept = (tensor.flatten(0, 1) for tensor in saved)
    units = outputs.shape[2]
    return project_backward(saved[0], a.x, a.w_ih, a.b, needs) | {
        "w_hh": torch.cat((parts[:, : 2 * units].T @ gathered, kept.T @ gathered)),
        "memory": grad_memory,
    }


def _run(a: Any, outputs: Tensor, saved: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    steps, batch, units = outputs.shape
    parts, gathered, kept = saved
    KERNEL.run(
        backward=backward,
        steps=steps,
        batch=batch,
        hidden_size=units,
        capacity=a.memory.shape[1],
        final_capacity=a.capacity,
        gathered_size=gathered.shape[2],
        first_size=a.first_size,
        edge_size=units if a.edge_size is None else a.edge_size,
        edge_types=0 if a.earlier is None else a.earlier.shape[2],
        edge_slots=0 if a.earlier is None else a.earlier.shape[3],
        shared=a.edge_size is None,
        linked=a.linked,
        parts=parts,
        gathered=gathered,
        kept=kept,
        weight=a.w_hh,
        memory=a.memory,
        earlier=a.earlier,
        since=a.since,
        lengths=a.lengths,
        outputs=outputs,
        **further,
    )
