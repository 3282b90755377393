"""The kernels of `gyral.ops.graph_gru.sequence` for the CPU: graph_gru.cpp, called through ctypes."""

from pathlib import Path

import torch
from torch import Tensor

from gyral.ops.graph_gru.problem import Gradients, Problem, Solution
from gyral.ops.native import library

DTYPES: tuple[torch.dtype, ...] = (torch.float32, torch.float64)

LIBRARY = library.Recurrence(
    Path(__file__).with_name("graph_gru.cpp"),
    (
        "steps", "batch", "hidden_size", "capacity", "gathered_size", "first_size", "edge_size", "edge_types",
        "edge_slots", "shared", "linked", "threads",
    ),
    (),
    (
        "parts", "gathered", "kept", "weight", "memory", "earlier", "since", "lengths", "outputs", "workspace",
        "history", "grad_memory",
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
    outputs = torch.empty_like(problem.history)
    _run(problem, outputs, backward=False)
    return Solution(outputs)


def backward(problem: Problem, solution: Solution, grad_outputs: Tensor, needs_memory: bool) -> Gradients:
    """Compute the gradients of a problem.

    Args:
        problem, solution: Those of `forward`; tensors of the problem are overwritten, see `Problem`.
        grad_outputs: (T, B, N).
        needs_memory: Whether to compute the gradient of the memory.
    """
    problem.history.copy_(grad_outputs)
    grad_memory = None
    if needs_memory:
        grad_memory = torch.zeros_like(problem.memory, memory_format=torch.contiguous_format)
    _run(problem, solution.outputs, backward=True, history=problem.history, grad_memory=grad_memory)
    return Gradients(grad_memory)


def _run(problem: Problem, outputs: Tensor, *, backward: bool, **further: Tensor | None) -> None:
    """Call the library on a problem; `further` are further fields of `Arguments`."""
    constants = problem.constants
    steps, batch, units = outputs.shape
    earlier = constants.earlier
    numbers = {
        "steps": steps,
        "batch": batch,
        "hidden_size": units,
        "capacity": problem.memory.shape[1],
        "gathered_size": problem.gathered.shape[2],
        "first_size": constants.first_size,
        "edge_size": units if constants.edge_size is None else constants.edge_size,
        "edge_types": 0 if earlier is None else earlier.shape[2],
        "edge_slots": 0 if earlier is None else earlier.shape[3],
        "shared": constants.edge_size is None,
        "linked": constants.linked,
    }
    tensors = {
        "parts": problem.parts,
        "gathered": problem.gathered,
        "kept": problem.kept,
        "weight": problem.weight_hh,
        "memory": problem.memory,
        "earlier": earlier,
        "since": constants.since,
        "lengths": constants.lengths,
        "outputs": outputs,
    }
    LIBRARY.run(backward, batch, problem.parts, numbers, tensors | further)
