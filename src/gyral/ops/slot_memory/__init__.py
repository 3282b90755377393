"""External memories with slots, those of NTM and DNC, and a controller, over a whole sequence.

    h_t = controller([x_t; r_{t−1}])
    r_t, memory_t = step(W h_t + b, memory_{t−1})
    output = [h_t; r_t]

`ntm` and `dnc` have the steps of the memories in plain torch, and `naive` has the loop.
"""

import ctypes
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product, projection
from gyral.ops.native.kernels import ProjectedKernels, like, rows
from gyral.ops.operator import Operator, cast_for_autocast, has_gradient
from gyral.ops.slot_memory import naive
from gyral.ops.slot_memory.dnc import DNCCodeMemory, DNCMemory
from gyral.ops.slot_memory.naive import CONTROLLERS, MEMORIES, Memory, flatten, unflatten
from gyral.ops.slot_memory.ntm import NTMMemory

__all__ = ["DNCCodeMemory", "DNCMemory", "Memory", "NTMMemory", "slot_memory", "unsupported_reason"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, inputs = check_shape("x", a.x, *a.x.shape[:2], "X")
    check_choice("memory", a.memory, tuple(MEMORIES))
    check_choice("controller", a.controller, CONTROLLERS)
    kind = MEMORIES[a.memory]
    if len(a.sizes) != len(kind._fields):
        raise InputError(f"sizes has {len(a.sizes)} numbers, must have {', '.join(kind._fields)}")
    for name, number in zip(kind._fields, a.sizes, strict=True):
        check_integer(name, number, minimum=int(name != "max_shift"))
    memory, is_lstm = kind(*a.sizes), a.controller == "lstm"
    read = memory.read_heads * memory.width
    _, size = check_shape("interface_weight", a.interface_weight, memory.outputs_size, "N")
    check_shape("interface_bias", a.interface_bias, memory.outputs_size)
    gates = (4 if is_lstm else 1) * size
    check_shape("w_ih", a.w_ih, gates, inputs)
    check_shape("b", a.b, gates)
    check_shape("w", a.w, gates, read + is_lstm * size)
    numbers = read + sum(map(math.prod, memory.shapes)) + is_lstm * 2 * size
    check_shape("state", a.state, batch, numbers)
    check_shape("fresh", a.fresh, numbers)
    check_shape("write", a.write, steps, batch)
    if a.starts is not None and a.fresh is None:
        raise InputError("fresh is None, must be a state where there are starts")


def kept_steps(a: Any) -> int:
    """Return the number of steps whose states are kept."""
    return a.x.shape[0] if a.has_gradient else 2  # len would make a number of a compiler's symbol


def record_sizes(a: Any) -> dict[str, int]:
    """Return the numbers on which the size of a record depends."""
    return {
        "hidden_size": a.interface_weight.shape[1],
        "memory": list(MEMORIES).index(a.memory),
        "controller": CONTROLLERS.index(a.controller),
        "write_heads": 1,  # a DNC has no such options
        "max_shift": 0,
        **MEMORIES[a.memory](*a.sizes)._asdict(),
    }


def sizes(a: Any) -> dict[str, int]:
    """Return the numbers that the kernel takes."""
    return {"steps": len(a.x), "batch": len(a.state), "kept_steps": kept_steps(a), **record_sizes(a)}


def records(a: Any) -> Tensor:
    """Return where the kernel keeps the states after each step, and what backward needs besides them."""
    # a compiler gives symbols for steps and batch, on which the size of a record does not depend
    numbers = KERNELS.kernel.fill({"steps": 1, "batch": 1, "kept_steps": 1, **record_sizes(a)})
    is_double = ctypes.c_int64(a.x.dtype == torch.float64)
    new: Tensor = a.x.new_empty(kept_steps(a), a.x.shape[1], KERNELS.kernel.function("record_size")(numbers, is_double))
    return new


def outputs(a: Any) -> Tensor:
    """Return a tensor (T, B, N + R · W) without values."""
    memory = MEMORIES[a.memory](*a.sizes)
    return rows(a, a.interface_weight.shape[1] + memory.read_heads * memory.width)


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    rows = len(a.x) * len(a.state)
    of_memory = MEMORIES[a.memory](*a.sizes).multiplications
    return projection(a), product(rows, a.w) + product(rows, a.interface_weight) + 2 * rows * of_memory


class SlotMemoryKernels(ProjectedKernels):
    """The kernels, and the gradients of the weights."""

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        found = super().backward(a, results, kept, gradients, needs)
        parts, seen, interface = (tensor.flatten(0, 1) for tensor in kept[:3])
        hidden = results[0][..., : a.interface_weight.shape[1]].flatten(0, 1)
        return found | {
            "w": parts.T @ seen,
            "interface_weight": interface.T @ hidden,
            "interface_bias": interface.sum(0),
        }


KERNELS = SlotMemoryKernels(
    Path(__file__).with_name("slot_memory.cpp"),
    sizes=sizes,
    results={"outputs": outputs, "final_state": like("state")},
    kept={
        "seen": lambda a: rows(a, a.w.shape[1]),  # what the products of the controller read
        "interface": lambda a: rows(a, len(a.interface_weight)),
        "records": records,
    },
    states={"state": "final_state"},
    sums=("fresh",),
    optional=("outputs",),
)
OPERATOR = Operator(naive.slot_memory, {"cpu": KERNELS}, shapes=shapes, dtypes={"write": torch.bool}, products=products)
unsupported_reason = OPERATOR.unsupported_reason


def slot_memory(
    x: Tensor,
    w_ih: Tensor,
    b: Tensor | None,
    w_hh: Tensor | None,
    interface_weight: Tensor,
    interface_bias: Tensor,
    state: tuple[Tensor, ...],
    memory: Memory,
    *,
    controller: str = "lstm",
    write: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    fresh: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a memory with its controller over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        x: (T, B, X).
        w_ih: (G, X + R · W), of the input and of the read vectors; G = 4N of an LSTM, rows [i; f; g; o], or N.
        b: (G,) or None.
        w_hh: (4N, N) of an LSTM, else None.
        interface_weight, interface_bias: (K, N) and (K,), K = `memory.outputs_size`.
        state: Before the first step: h and c (B, N) of an LSTM, the read vector (B, R · W), and the tensors of the
            state of the memory.
        memory: The kind and the sizes of the memory.
        controller: "lstm", or the activation of a feedforward controller, "tanh" or "relu".
        write: (T, B) bool: where the memory may be written. None: everywhere.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row to `fresh` before the step.
        fresh: A state for a batch of one; needed with `starts`.

    Returns:
        outputs (T, B, N + R · W), and the state after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        InputError: See `gyral.ops.declaration.Checks`.
    """
    x, *leaves = cast_for_autocast(w_ih.dtype, x, *state)
    w_x, w = w_ih.tensor_split([x.shape[2]], dim=1)
    if w_hh is not None:
        w = torch.cat((w_hh, w), dim=1)
    given = (
        *(x, w_x, b, w, interface_weight, interface_bias, flatten(tuple(leaves), controller)),
        None if starts is None or fresh is None else flatten(fresh, controller)[0],
    )
    name = next(name for name, kind in MEMORIES.items() if isinstance(memory, kind))
    outputs, final = OPERATOR.run(*given, write, lengths, starts, name, list(memory), controller, has_gradient(*given))
    return outputs, unflatten(final, memory, controller, interface_weight.shape[1])
