"""The kernels of `gyral.ops.slot_memory` for the CPU: slot_memory.cpp, called through ctypes."""

import ctypes
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gyral.ops import buffers
from gyral.ops.native import library
from gyral.ops.sequences import project
from gyral.ops.slot_memory.arguments import CONTROLLERS, FixedArguments, Tensors
from gyral.ops.slot_memory.ntm import NTMMemory

DTYPES = library.DTYPES

LIBRARY = library.Recurrence(
    Path(__file__).with_name("slot_memory.cpp"),
    (
        "steps", "batch", "hidden_size", "memory", "controller", "slots", "width", "read_heads", "write_heads",
        "max_shift", "kept_steps", "threads",
    ),
    (),
    (
        "parts", "weight", "interface_weight", "interface_bias", "seen", "interface", "records", "state", "write",
        "lengths", "starts", "fresh", "outputs", "final_state", "workspace", "grad_outputs", "grad_state", "grad_fresh",
    ),
)  # fmt: skip
prepare = LIBRARY.prepare


class Saved(NamedTuple):
    """What `forward` leaves for `backward`, all in one buffer.

    Attributes:
        records: The states after each step and what backward needs besides them.
        parts: (T, B, G), values of the controller; `backward` overwrites them with the gradient of its products.
        seen: (T, B, V), what the products read.
        interface: (T, B, K), the outputs for the memory; `backward` overwrites them with their gradient.
    """

    records: Tensor
    parts: Tensor
    seen: Tensor
    interface: Tensor
    buffer: Tensor


def forward(fixed: FixedArguments, tensors: Tensors, keep: bool) -> tuple[Tensor, Tensor, Saved]:
    """Run all steps; return outputs and final state as `gyral.ops.slot_memory.naive.run`.

    Args:
        fixed, tensors: The arguments; all tensors are contiguous.
        keep: Whether to keep the states of all steps, for `backward`.
    """
    steps, batch, _ = tensors.inputs.shape
    kept_steps = steps if keep else min(steps, 2)
    numbers = _numbers(fixed, tensors, kept_steps)
    is_double = ctypes.c_int64(tensors.inputs.dtype == torch.float64)
    record = LIBRARY.function("record_size")(ctypes.byref(LIBRARY.fill(batch, numbers, {})), is_double)
    shapes = [
        (kept_steps, batch, record),
        (steps, batch, len(tensors.weight)),
        (steps, batch, tensors.weight.shape[1]),
        (steps, batch, len(tensors.interface_weight)),
    ]
    sizes = [a * b * c for a, b, c in shapes]
    buffer = buffers.acquire(sum(sizes), tensors.inputs)
    records, parts, seen, interface = (
        part.view(shape) for part, shape in zip(buffer.split(sizes), shapes, strict=True)
    )
    saved = Saved(records, parts, seen, interface, buffer)
    project(tensors.inputs, tensors.weight_x, tensors.bias, out=parts)
    width = tensors.interface_weight.shape[1] + fixed.memory.read_heads * fixed.memory.width
    outputs, final = tensors.inputs.new_empty(steps, batch, width), tensors.state.new_empty(tensors.state.shape)
    fields = _fields(fixed, tensors, saved, outputs)
    LIBRARY.run(False, batch, outputs, numbers, fields | {"final_state": final})
    return outputs, final, saved


def backward(
    fixed: FixedArguments, tensors: Tensors, saved: Saved, outputs: Tensor, gradients: tuple[Tensor | None, ...]
) -> tuple[Tensor, Tensor | None]:
    """Return the gradients of `state` and `fresh`; those of `parts` and `interface` overwrite these tensors.

    Args:
        fixed, tensors: The arguments; all tensors are contiguous.
        saved, outputs: Of `forward` with `keep`.
        gradients: Of both return values of the forward pass, None stands for zeros.
    """
    grad_outputs, grad_final = gradients
    state, fresh = tensors.state, None
    if grad_final is None:
        grad_state = torch.zeros_like(state)
    else:  # the kernel overwrites it
        grad_state = grad_final.clone(memory_format=torch.contiguous_format)
    if tensors.fresh is not None:  # one partial sum per block of rows
        fresh = state.new_zeros(LIBRARY.blocks(len(state)), state.shape[1])
    fields = _fields(fixed, tensors, saved, outputs) | {
        "grad_outputs": None if grad_outputs is None else grad_outputs.contiguous(),
        "grad_state": grad_state,
        "grad_fresh": fresh,
    }
    LIBRARY.run(True, len(state), outputs, _numbers(fixed, tensors, len(outputs)), fields)
    return grad_state, None if fresh is None else fresh.sum(0)


def _numbers(fixed: FixedArguments, tensors: Tensors, kept_steps: int) -> dict[str, int]:
    steps, batch, _ = tensors.inputs.shape
    return {
        "steps": steps,
        "batch": batch,
        "hidden_size": tensors.interface_weight.shape[1],
        "memory": 0 if isinstance(fixed.memory, NTMMemory) else 1,
        "controller": CONTROLLERS.index(fixed.controller),
        "kept_steps": kept_steps,
        **fixed.memory._asdict(),
    }


def _fields(fixed: FixedArguments, tensors: Tensors, saved: Saved, outputs: Tensor) -> dict[str, Tensor | None]:
    names = ("weight", "interface_weight", "interface_bias", "state", "fresh")
    fields: dict[str, Tensor | None] = {name: getattr(tensors, name) for name in names}
    fields |= {"write": fixed.write, "lengths": fixed.lengths, "starts": fixed.starts, "outputs": outputs}
    return fields | dict(zip(Saved._fields[:-1], saved[:-1], strict=True))
