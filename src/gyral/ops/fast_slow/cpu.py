"""The kernels of `gyral.ops.fast_slow.sequence` for the CPU: fast_slow.cpp, called through ctypes."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops import rum
from gyral.ops.fast_slow.arguments import Arguments, Gradients, Results, State
from gyral.ops.gated import cpu as gated_cpu
from gyral.ops.native import library
from gyral.ops.rum import cpu as rum_cpu

DTYPES = library.DTYPES

LIBRARY = library.Recurrence(
    Path(__file__).with_name("fast_slow.cpp"),
    ("steps", "batch", "count", "threads"),
    (),
    ("subcells", "grad_outputs", "workspace"),
)


def prepare(device: torch.device) -> None:
    """Compile the kernels on first use; see `gyral.ops.native.library.Recurrence.prepare`."""
    LIBRARY.prepare()
    gated_cpu.LIBRARY.prepare()
    rum_cpu.LIBRARY.prepare()


def forward(arguments: Arguments) -> Results:
    """Run all steps."""
    final: dict[int, State] = {}
    scalars: list[Tensor | None] = []
    further: list[dict[str, Tensor | None]] = []
    for index, own in enumerate(arguments.subcells):
        steps, batch, *_ = own.parts.shape
        is_rum = isinstance(own, rum.Arguments)
        scalars.append(own.parts.new_empty(steps, batch, rum_cpu.LIBRARY.function("scalars")()) if is_rum else None)
        further.append({})
        if arguments.connections.is_last(index):
            cell_state = (
                None if isinstance(own, rum.Arguments) or own.cell_state is None else torch.empty_like(own.cell_state)
            )
            final[arguments.connections.states[index]] = torch.empty_like(own.hidden), cell_state
            further[-1] = {"final_hidden": final[arguments.connections.states[index]][0]}
            if not is_rum:
                further[-1]["final_cell_state"] = cell_state
    _run(arguments, scalars, further, backward=False)
    return Results(tuple(final[state] for state in sorted(final)), tuple(scalars))


def backward(
    arguments: Arguments, scalars: tuple[Tensor | None, ...], grad_outputs: Tensor, grad_states: tuple[State, ...]
) -> Gradients:
    """Return the gradients, given the scalars of `Results` and the gradients of the outputs and of the states."""
    # the kernel overwrites these
    states = tuple(
        (
            grad_hidden.clone(memory_format=torch.contiguous_format),
            None if grad_cell_state is None else grad_cell_state.clone(memory_format=torch.contiguous_format),
        )
        for grad_hidden, grad_cell_state in grad_states
    )
    extra: list[Tensor | None] = []
    further: list[dict[str, Tensor | None]] = []
    for index, own in enumerate(arguments.subcells):
        grad_hidden, grad_cell_state = (
            states[arguments.connections.states[index]] if arguments.connections.is_last(index) else (None, None)
        )
        if isinstance(own, rum.Arguments):
            grad_bias, grad_extra = rum_cpu.new_sums(own)
            further.append({"grad_hidden": grad_hidden, "grad_bias": grad_bias, "grad_norms": grad_extra})
        else:
            grad_extra = gated_cpu.new_sums(own, own.extra)
            further.append({"grad_hidden": grad_hidden, "grad_cell_state": grad_cell_state, "grad_extra": grad_extra})
        extra.append(grad_extra)
    _run(arguments, scalars, further, backward=True, grad_outputs=grad_outputs.contiguous())
    # one partial sum per block of rows, two for RUM
    sums = [
        None if sum is None or own_extra is None else sum.view(-1, *own_extra.shape).sum(0)
        for sum, own_extra in zip(extra, map(_extra, arguments.subcells), strict=True)
    ]
    return Gradients(states, tuple(sums))


def _extra(own: Any) -> Tensor | None:
    found: Tensor | None = own.norms if isinstance(own, rum.Arguments) else own.extra
    return found


def _run(
    arguments: Arguments,
    scalars: Any,
    further: list[dict[str, Tensor | None]],
    *,
    backward: bool,
    grad_outputs: Tensor | None = None,
) -> None:
    """Call the library; `further` has further fields of the C++ structure `Arguments` of each subcell."""
    connections = arguments.connections
    steps, batch, *_ = arguments.subcells[0].parts.shape
    structures, owned, table = [], [], []  # structures and tensors must outlive the call, which reads their addresses
    for index, own in enumerate(arguments.subcells):
        predecessor, lag = connections.predecessor(index)
        tensors = {"outputs": arguments.outputs[index], "past": arguments.outputs[predecessor], **further[index]}
        if isinstance(own, rum.Arguments):
            tensors["scalars"] = scalars[index]
            numbers, tensors = rum_cpu.fields(own, lag=lag, **tensors)
            structure = rum_cpu.LIBRARY.fill(batch, numbers, tensors)
        else:
            tensors["cell_states"] = arguments.cell_states[index]
            tensors["past_cell_states"] = arguments.cell_states[predecessor]
            numbers, tensors = gated_cpu.fields(own, lag=lag, **tensors)
            structure = gated_cpu.LIBRARY.fill(batch, numbers, tensors)
        structures.append(structure)
        owned.append(tensors)
        given = arguments.weights_ih[index], arguments.biases[index], connections.masks[index]
        assert all(tensor is None or tensor.is_contiguous() for tensor in given)
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in given]
        flags = [isinstance(own, rum.Arguments), connections.sources[index], connections.states[index], index == 0]
        table.append([*flags, ctypes.addressof(structure), *addresses])
    numbers = {"steps": steps, "batch": batch, "count": len(table)}
    subcells = torch.tensor(table, dtype=torch.int64)
    LIBRARY.run(backward, batch, arguments.outputs[-1], numbers, {"subcells": subcells, "grad_outputs": grad_outputs})
