"""The kernels of `gyral.ops.graph_gru.sequence` for the CPU: graph_gru.cpp, called through ctypes."""

from pathlib import Path

import torch
from torch import Tensor

from gyral.ops.graph_gru.arguments import Arguments, Gradients, Results
from gyral.ops.native import library

DTYPES = library.DTYPES

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
prepare = LIBRARY.prepare


def forward(arguments: Arguments) -> Results:
    """Run all steps."""
    memory, capacity = arguments.memory, arguments.fixed.capacity
    results = Results(torch.empty_like(arguments.history), memory.new_empty(memory.shape[0], capacity, memory.shape[2]))
    _run(arguments, results.outputs, backward=False, final_memory=results.memory)
    return results


def backward(
    arguments: Arguments, outputs: Tensor, gradients: tuple[Tensor | None, Tensor | None], needs_memory: bool
) -> Gradients:
    """Compute the gradients.

    Args:
        arguments, outputs: As in `forward`; overwrites tensors of the arguments, see `Arguments`.
        gradients: Gradients of the outputs (T, B, N) and of the new memory (B, C', N), None stands for zeros.
        needs_memory: Whether to compute the gradient of the memory.
    """
    grad_outputs, grad_final = gradients
    if grad_outputs is None:
        arguments.history.zero_()
    else:
        arguments.history.copy_(grad_outputs)
    grad_memory = None
    if needs_memory:
        grad_memory = torch.zeros_like(arguments.memory, memory_format=torch.contiguous_format)
    _run(
        arguments,
        outputs,
        backward=True,
        history=arguments.history,
        grad_final_memory=None if grad_final is None else grad_final.contiguous(),
        grad_memory=grad_memory,
    )
    return Gradients(grad_memory)


def _run(arguments: Arguments, outputs: Tensor, *, backward: bool, **further: Tensor | None) -> None:
    """Call the library; `further` are further fields of the C++ structure `Arguments`."""
    fixed = arguments.fixed
    steps, batch, units = outputs.shape
    earlier = fixed.earlier
    numbers = {
        "steps": steps,
        "batch": batch,
        "hidden_size": units,
        "capacity": arguments.memory.shape[1],
        "final_capacity": fixed.capacity,
        "gathered_size": arguments.gathered.shape[2],
        "first_size": fixed.first_size,
        "edge_size": units if fixed.edge_size is None else fixed.edge_size,
        "edge_types": 0 if earlier is None else earlier.shape[2],
        "edge_slots": 0 if earlier is None else earlier.shape[3],
        "shared": fixed.edge_size is None,
        "linked": fixed.linked,
    }
    tensors = {
        "parts": arguments.parts,
        "gathered": arguments.gathered,
        "kept": arguments.kept,
        "weight": arguments.weight_hh,
        "memory": arguments.memory,
        "earlier": earlier,
        "since": fixed.since,
        "lengths": fixed.lengths,
        "outputs": outputs,
    }
    LIBRARY.run(backward, batch, arguments.parts, numbers, tensors | further)
