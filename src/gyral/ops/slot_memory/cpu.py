"""The kernels of `gyral.ops.slot_memory` for the CPU: slot_memory.cpp, called through ctypes."""

import ctypes
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.native import library
from gyral.ops.sequences import project, project_backward
from gyral.ops.slot_memory.naive import CONTROLLERS, MEMORIES, Memory

DTYPES = library.DTYPES

KERNEL = library.Kernel(Path(__file__).with_name("slot_memory.cpp"))
prepare = KERNEL.prepare


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return the results, and saved: records, parts, seen, interface.

    The records are the states after each step and what backward needs besides them; parts (T, B, G) are values of the
    controller, seen (T, B, V) is what its products read, interface (T, B, K) are the outputs for the memory.
    """
    steps, batch, _ = a.x.shape
    new, memory = a.x.new_empty, _memory(a)
    # a compiler gives symbols for steps and batch, on which the size of a record does not depend
    numbers = KERNEL.fill({"steps": 1, "batch": 1, "kept_steps": 1, **_sizes(a)})
    is_double = ctypes.c_int64(a.x.dtype == torch.float64)
    record = KERNEL.function("record_size")(numbers, is_double)
    width = a.interface_weight.shape[1] + memory.read_heads * memory.width
    saved = [
        new(_kept_steps(a), batch, record),
        new(steps, batch, len(a.w)),
        new(steps, batch, a.w.shape[1]),
        new(steps, batch, len(a.interface_weight)),
    ]
    return [new(steps, batch, width), torch.empty_like(a.state)], saved


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    project(a.x, a.w_ih, a.b, out=saved[1])
    _run(a, results[0], saved, backward=False, final_state=results[1])
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Tensor | None], needs: dict[str, bool]
) -> dict[str, Tensor | None]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    outputs, fresh = results[0], None
    grad_outputs, grad_final = gradients
    # the kernel overwrites it
    grad_state = torch.zeros_like(a.state) if grad_final is None else grad_final.clone()
    if a.fresh is not None:  # one partial sum per block of rows
        fresh = a.state.new_zeros(KERNEL.blocks(len(a.state)), a.state.shape[1])
    _run(a, outputs, saved, backward=True, grad_outputs=grad_outputs, grad_state=grad_state, grad_fresh=fresh)
    _, parts, seen, interface = saved
    rows, hidden = interface.flatten(0, 1), outputs[..., : a.interface_weight.shape[1]].flatten(0, 1)
    return project_backward(parts, a.x, a.w_ih, a.b, needs) | {
        "w": parts.flatten(0, 1).T @ seen.flatten(0, 1),
        "interface_weight": rows.T @ hidden,
        "interface_bias": rows.sum(0),
        "state": grad_state,
        "fresh": None if fresh is None else fresh.sum(0),
    }


def _memory(a: Any) -> Memory:
    return MEMORIES[a.memory](*a.sizes)


def _kept_steps(a: Any) -> int:
    return a.x.shape[0] if a.has_gradient else 2  # len would make a number of a compiler's symbol


def _sizes(a: Any) -> dict[str, Any]:
    return {
        "hidden_size": a.interface_weight.shape[1],
        "memory": list(MEMORIES).index(a.memory),
        "controller": CONTROLLERS.index(a.controller),
        "write_heads": 1,  # a DNC has no such options
        "max_shift": 0,
        **_memory(a)._asdict(),
    }


def _run(a: Any, outputs: Tensor, saved: list[Any], *, backward: bool, **further: Any) -> None:
    """Call the library; `further` are further arguments of the kernel."""
    records, parts, seen, interface = saved
    KERNEL.run(
        backward=backward,
        **_sizes(a),
        steps=len(a.x),
        batch=len(a.state),
        kept_steps=_kept_steps(a),
        records=records,
        parts=parts,
        seen=seen,
        interface=interface,
        weight=a.w,
        interface_weight=a.interface_weight,
        interface_bias=a.interface_bias,
        state=a.state,
        fresh=a.fresh,
        write=a.write,
        lengths=a.lengths,
        starts=a.starts,
        outputs=outputs,
        **further,
    )
