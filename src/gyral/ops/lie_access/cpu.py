"""The kernels of `gyral.ops.lie_access.sequence` for the CPU: lie_access.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.lie_access.problem import GROUPS, Gradients, Problem, Solution
from gyral.ops.native import library

DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64)

LIBRARY = library.Recurrence(
    Path(__file__).with_name("lie_access.cpp"),
    (
        "steps", "batch", "hidden_size", "width", "capacity", "log_size", "forget", "group", "normalize_steps",
        "softmax", "threads",
    ),
    (),
    (
        "parts", "weight", "head_weight", "head_bias", "heads", "records", "log", "windows", "initial_keys",
        "initial_vectors", "initial_strengths", "count", "write", "lengths", "starts", "fresh", "outputs",
        "final_record", "final_keys", "final_vectors", "final_strengths", "final_count", "is_full", "workspace",
        "grad_outputs", "grad_record", "grad_keys", "grad_vectors", "grad_strengths", "grad_initial_keys",
        "grad_initial_vectors", "grad_initial_strengths", "grad_fresh",
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
    tensors, count = problem.tensors, problem.constants.count
    steps, batch, _ = problem.parts.shape
    outputs = problem.parts.new_empty(steps, batch, tensors.weight_x.shape[0] // 4)
    windows = count.new_empty(steps, batch, 2)
    is_full = count.new_zeros(1)
    given = (tensors.record, tensors.keys, tensors.vectors, tensors.strengths, count)
    final: Any = [torch.empty_like(leaf) for leaf in given]
    names = ("record", "keys", "vectors", "strengths", "count")
    _run(
        problem,
        backward=False,
        outputs=outputs,
        windows=windows,
        is_full=is_full,
        **{f"final_{name}": leaf for name, leaf in zip(names, final, strict=True)},
    )
    values: Any = (outputs, *final, windows, bool(is_full))
    return Solution(*values)


def backward(
    problem: Problem, solution: Solution, gradients: tuple[Tensor | None, ...], needs_memory: bool
) -> Gradients:
    """Return the gradients of a problem.

    Args:
        problem, solution: Those of `forward`.
        gradients: Those of outputs, record, keys, vectors and strengths of the solution, None for zeros.
        needs_memory: Whether to compute the gradient of the initial memory.
    """
    tensors = problem.tensors
    grad_outputs, grad_record, *grad_memory = gradients
    if grad_record is None:
        record = torch.zeros_like(tensors.record)
    else:  # the kernel overwrites it
        record = grad_record.clone(memory_format=torch.contiguous_format)
    memory = {"keys": tensors.keys, "vectors": tensors.vectors, "strengths": tensors.strengths}
    given: dict[str, Tensor | None] = {}
    if any(gradient is not None for gradient in grad_memory):
        for (name, leaf), gradient in zip(memory.items(), grad_memory, strict=True):
            given[f"grad_{name}"] = torch.zeros_like(leaf) if gradient is None else gradient.contiguous()
    initial: Any = [torch.empty_like(leaf) if needs_memory else None for leaf in memory.values()]
    fresh = None
    if tensors.fresh is not None:  # one partial sum per block of rows
        fresh = tensors.fresh.new_zeros(LIBRARY.blocks(len(record)), len(tensors.fresh))
    _run(
        problem,
        backward=True,
        outputs=solution.outputs,
        windows=solution.windows,
        grad_outputs=None if grad_outputs is None else grad_outputs.contiguous(),
        grad_record=record,
        grad_fresh=fresh,
        **given,
        **{f"grad_initial_{name}": gradient for name, gradient in zip(memory, initial, strict=True)},
    )
    values: Any = (record, *initial, None if fresh is None else fresh.sum(0))
    return Gradients(*values)


def _run(problem: Problem, *, backward: bool, **further: Tensor | None) -> None:
    """Call the library on a problem; `further` are further fields of `Arguments`."""
    tensors, constants = problem.tensors, problem.constants
    steps, batch, gates = problem.parts.shape
    numbers = {
        "steps": steps,
        "batch": batch,
        "hidden_size": gates // 4,
        "width": tensors.vectors.shape[2],
        "capacity": tensors.keys.shape[1],
        "log_size": problem.log.shape[2],
        "forget": constants.options.forget,
        "group": GROUPS.index(type(constants.options.group)),
        "normalize_steps": constants.options.group.normalizes,
        "softmax": constants.options.softmax,
    }
    fields = {
        "parts": problem.parts,
        "weight": tensors.weight,
        "head_weight": tensors.head_weight,
        "head_bias": tensors.head_bias,
        "heads": problem.heads,
        "records": problem.records,
        "log": problem.log,
        "initial_keys": tensors.keys,
        "initial_vectors": tensors.vectors,
        "initial_strengths": tensors.strengths,
        "count": constants.count,
        "write": constants.write,
        "lengths": constants.lengths,
        "starts": constants.starts,
        "fresh": tensors.fresh,
    }
    LIBRARY.run(backward, batch, problem.parts, numbers, fields | further)
