"""The kernels of `gyral.ops.gated.sequence` for the CPU: gated.cpp, called through ctypes."""

from pathlib import Path

import torch
from torch import Tensor

from gyral.ops import buffers
from gyral.ops.gated.problem import KEEPS_PRODUCT, KINDS, Gradients, Problem, Solution
from gyral.ops.native import library

DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64)

LIBRARY = library.Recurrence(
    Path(__file__).with_name("gated.cpp"),
    (
        "steps", "batch", "hidden_size", "cell_size", "parts_size", "weight_rows", "kept_size", "extra_size", "units",
        "chunk", "kind", "lag", "layers", "threads",
    ),
    ("keep_mean", "keep_cell_mean", "epsilon"),
    (
        "parts", "weight", "extra", "hidden", "cell", "keep", "keep_cell", "drop", "lengths", "starts", "fresh",
        "fresh_cell", "partner", "outputs", "cells", "past", "past_cells", "kept", "final_hidden", "final_cell",
        "workspace", "grad_outputs", "grad_hidden", "grad_cell", "grad_extra", "grad_fresh", "grad_weight",
    ),
)  # fmt: skip


def prepare(device: torch.device) -> None:
    """Compile the kernels on first use.

    Raises:
        KernelUnavailableError: The kernels cannot be compiled or loaded on this machine.
    """
    LIBRARY.prepare()


def forward(problem: Problem) -> Solution:
    """Run all steps of a problem."""
    steps, batch, _ = problem.parts.shape
    new = problem.parts.new_empty
    outputs, final_hidden = new(steps, batch, problem.hidden.shape[1]), torch.empty_like(problem.hidden)
    cells = final_cell = None
    if problem.cell is not None:
        cells = buffers.acquire(steps * problem.cell.numel(), problem.cell).view(steps, *problem.cell.shape)
        final_cell = torch.empty_like(problem.cell)
    kept = new(steps, batch, problem.units) if problem.kind in KEEPS_PRODUCT else None
    _run(
        problem,
        backward=False,
        outputs=outputs,
        cells=cells,
        kept=kept,
        final_hidden=final_hidden,
        final_cell=final_cell,
    )
    return Solution(outputs, final_hidden, final_cell, cells, kept)


def backward(
    problem: Problem, solution: Solution, grad_outputs: Tensor, grad_hidden: Tensor, grad_cell: Tensor | None
) -> Gradients:
    """Return the gradients of a problem, given those of its solution."""
    grad_extra = new_sums(problem, problem.extra)
    grad_fresh = new_sums(problem, problem.fresh)
    grad_weight = new_sums(problem, None if problem.partner is None else problem.weight_hh)
    # the kernel overwrites these
    grad_hidden = grad_hidden.clone(memory_format=torch.contiguous_format)
    grad_cell = None if grad_cell is None else grad_cell.clone(memory_format=torch.contiguous_format)
    _run(
        problem,
        backward=True,
        outputs=solution.outputs,
        cells=solution.cells,
        kept=solution.kept,
        grad_outputs=grad_outputs.contiguous(),
        grad_hidden=grad_hidden,
        grad_cell=grad_cell,
        grad_extra=grad_extra,
        grad_fresh=grad_fresh,
        grad_weight=grad_weight,
    )
    extra, fresh, weight = (None if sums is None else sums.sum(0) for sums in (grad_extra, grad_fresh, grad_weight))
    return Gradients(problem.parts, solution.kept, grad_hidden, grad_cell, extra, fresh, weight)


def new_sums(problem: Problem, like: Tensor | None) -> Tensor | None:
    """Return zeros for the gradient of a parameter, or None without it: one partial sum per block of rows."""
    if like is None:
        return None
    return like.new_zeros(LIBRARY.blocks(problem.parts.shape[1]), *like.shape)


def _run(problem: Problem, *, backward: bool, **tensors: Tensor | None) -> None:
    """Call the library on a problem; `tensors` are further fields of `Arguments`."""
    tensors |= {"past": tensors["outputs"], "past_cells": tensors["cells"]}
    LIBRARY.run(backward, problem.parts.shape[1], problem.parts, *fields(problem, lag=1, **tensors))


def fields(
    problem: Problem, *, lag: int, **tensors: Tensor | None
) -> tuple[dict[str, float], dict[str, Tensor | None]]:
    """Return the fields of `Arguments`: numbers, and the problem's tensors together with `tensors`."""
    steps, batch, parts_size = problem.parts.shape
    keep, keep_cell, kept = problem.keep, problem.keep_cell, tensors.get("kept")
    tensors |= {
        "parts": problem.parts,
        "weight": problem.weight_hh,
        "extra": problem.extra,
        "hidden": problem.hidden,
        "cell": problem.cell,
        "keep": keep if isinstance(keep, Tensor) else None,
        "keep_cell": keep_cell if isinstance(keep_cell, Tensor) else None,
        "drop": problem.drop,
        "lengths": problem.lengths,
        "starts": problem.starts,
        "partner": problem.partner,
    }
    if problem.starts is not None:
        hidden, cell, fresh = problem.hidden, problem.cell, problem.fresh
        tensors["fresh"] = hidden.new_zeros(hidden.shape[1]) if fresh is None else fresh
        tensors["fresh_cell"] = None if cell is None else cell.new_zeros(cell.shape[1])
    numbers = {
        "steps": steps,
        "batch": batch,
        "hidden_size": problem.hidden.shape[1],
        "cell_size": 0 if problem.cell is None else problem.cell.shape[1],
        "parts_size": parts_size,
        "weight_rows": len(problem.weight_hh) if problem.partner is None else parts_size,
        "kept_size": 0 if kept is None else kept.shape[2],
        "extra_size": 0 if problem.extra is None else problem.extra.numel(),
        "units": problem.units,
        "chunk": problem.chunk,
        "kind": KINDS.index(problem.kind),
        "lag": lag,
        "layers": 0 if problem.partner is None else len(problem.partner),
        "keep_mean": keep if isinstance(keep, float) else 0.0,
        "keep_cell_mean": keep_cell if isinstance(keep_cell, float) else 0.0,
        "epsilon": problem.epsilon,
    }
    return numbers, tensors
