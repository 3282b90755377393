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
        "steps", "batch", "hidden_size", "capacity", "final_capacity", "gathered_size", "first_size", "edge_size",
        "edge_types", "edge_slots", "shared", "linked", "threads",
    ),
    (),
    (
        "parts", "gathered", "kept", "weight", "memory", "earlier", "since", "lengths", "outputs", "final_memory",
        "workspace", "history", "grad_final_memory", "grad_memory",
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
    memory, capacity = problem.memory, problem.constants.capacity
    solution = Solution(torch.empty_like(problem.history), memory.new_empty(memory.shape[0], capacity, memory.shape[2]))
    _run(problem, solution.outputs, backward=False, final_memory=solution.memory)
    return solution


def backward(
    problem: Problem, outputs: Tensor, gradients: tuple[Tensor | None, Tensor | None], needs_memory: bool
) -> Gradients:
    """Compute the gradients of a problem.

    Args:
        problem, outputs: Those of `forward`; tensors of the problem are overwritten, see `Problem`.
        gradients: Those of the outputs (T, B, N) and of the new memory (B, C', N), None for zeros.
        needs_memory: Whether to compute the gradient of the memory.
    """
    grad_outputs, grad_final = gradients
    if grad_outputs is None:
        problem.history.zero_()
    else:
        problem.history.copy_(grad_outputs)
    grad_memory = None
    if needs_memory:
        grad_memory = torch.zeros_like(problem.memory, memory_format=torch.contiguous_format)
    _run(
        problem,
        outputs,
        backward=True,
        history=problem.history,
        grad_final_memory=None if grad_final is None else grad_final.contiguous(),
        grad_memory=grad_memory,
    )
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
        "final_capacity": constants.capacity,
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
