"""The kernels of `gyral.ops.lie_access.sequence` for the CPU: lie_access.cpp, called through ctypes."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.lie_access.arguments import GROUPS, Arguments, Gradients, Results
from gyral.ops.native import library

DTYPES = library.DTYPES

LIBRARY = library.Recurrence(
    Path(__file__).with_name("lie_access.cpp"),
    (
        "steps", "batch", "hidden_size", "width", "capacity", "log_size", "forget", "group", "normalize_steps",
        "softmax", "threads",
    ),
    (),
    (
        "parts", "weight", "head_weight", "head_bias", "heads", "flat_states", "log", "windows", "initial_keys",
        "initial_vectors", "initial_strengths", "count", "write", "lengths", "starts", "fresh", "outputs",
        "final_flat_state", "final_keys", "final_vectors", "final_strengths", "final_count", "is_full", "workspace",
        "grad_outputs", "grad_flat_state", "grad_keys", "grad_vectors", "grad_strengths", "grad_initial_keys",
        "grad_initial_vectors", "grad_initial_strengths", "grad_fresh",
    ),
)  # fmt: skip
prepare = LIBRARY.prepare


def forward(arguments: Arguments) -> Results:
    """Run all steps."""
    tensors, count = arguments.tensors, arguments.fixed.count
    steps, batch, _ = arguments.parts.shape
    outputs = arguments.parts.new_empty(steps, batch, tensors.weight_x.shape[0] // 4)
    windows = count.new_empty(steps, batch, 2)
    is_full = count.new_zeros(1)
    given = (tensors.flat_state, tensors.keys, tensors.vectors, tensors.strengths, count)
    final: Any = [torch.empty_like(leaf) for leaf in given]
    names = ("flat_state", "keys", "vectors", "strengths", "count")
    _run(
        arguments,
        backward=False,
        outputs=outputs,
        windows=windows,
        is_full=is_full,
        **{f"final_{name}": leaf for name, leaf in zip(names, final, strict=True)},
    )
    values: Any = (outputs, *final, windows, bool(is_full))
    return Results(*values)


def backward(
    arguments: Arguments, results: Results, gradients: tuple[Tensor | None, ...], needs_memory: bool
) -> Gradients:
    """Return the gradients.

    Args:
        arguments, results: Arguments and return value of `forward`.
        gradients: Gradients of outputs, flat_state, keys, vectors and strengths of the results, None stands for zeros.
        needs_memory: Whether to compute the gradient of the initial memory.
    """
    tensors = arguments.tensors
    grad_outputs, grad_flat_state, *grad_memory = gradients
    if grad_flat_state is None:
        flat_state = torch.zeros_like(tensors.flat_state)
    else:  # the kernel overwrites it
        flat_state = grad_flat_state.clone(memory_format=torch.contiguous_format)
    memory = {"keys": tensors.keys, "vectors": tensors.vectors, "strengths": tensors.strengths}
    given: dict[str, Tensor | None] = {}
    if any(gradient is not None for gradient in grad_memory):
        for (name, leaf), gradient in zip(memory.items(), grad_memory, strict=True):
            given[f"grad_{name}"] = torch.zeros_like(leaf) if gradient is None else gradient.contiguous()
    initial: Any = [torch.empty_like(leaf) if needs_memory else None for leaf in memory.values()]
    fresh = None
    if tensors.fresh is not None:  # one partial sum per block of rows
        fresh = tensors.fresh.new_zeros(LIBRARY.blocks(len(flat_state)), len(tensors.fresh))
    _run(
        arguments,
        backward=True,
        outputs=results.outputs,
        windows=results.windows,
        grad_outputs=None if grad_outputs is None else grad_outputs.contiguous(),
        grad_flat_state=flat_state,
        grad_fresh=fresh,
        **given,
        **{f"grad_initial_{name}": gradient for name, gradient in zip(memory, initial, strict=True)},
    )
    values: Any = (flat_state, *initial, None if fresh is None else fresh.sum(0))
    return Gradients(*values)


def _run(arguments: Arguments, *, backward: bool, **further: Tensor | None) -> None:
    """Call the library; `further` are further fields of the C++ structure `Arguments`."""
    tensors, fixed = arguments.tensors, arguments.fixed
    steps, batch, gates = arguments.parts.shape
    numbers = {
        "steps": steps,
        "batch": batch,
        "hidden_size": gates // 4,
        "width": tensors.vectors.shape[2],
        "capacity": tensors.keys.shape[1],
        "log_size": arguments.log.shape[2],
        "forget": fixed.options.forget,
        "group": GROUPS.index(type(fixed.options.group)),
        "normalize_steps": fixed.options.group.normalizes,
        "softmax": fixed.options.softmax,
    }
    fields = {
        "parts": arguments.parts,
        "weight": tensors.weight,
        "head_weight": tensors.head_weight,
        "head_bias": tensors.head_bias,
        "heads": arguments.heads,
        "flat_states": arguments.flat_states,
        "log": arguments.log,
        "initial_keys": tensors.keys,
        "initial_vectors": tensors.vectors,
        "initial_strengths": tensors.strengths,
        "count": fixed.count,
        "write": fixed.write,
        "lengths": fixed.lengths,
        "starts": fixed.starts,
        "fresh": tensors.fresh,
    }
    LIBRARY.run(backward, batch, arguments.parts, numbers, fields | further)
