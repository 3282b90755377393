"""An external memory with its controller in plain torch, for `gyral.ops.slot_memory`.

The kernels compute the same as `slot_memory`, which provides their second derivatives.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.slot_memory.dnc import DNCMemory
from gyral.ops.slot_memory.ntm import NTMMemory

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu}
CONTROLLERS = ("lstm", *ACTIVATIONS)  # in the order of slot_memory.cpp
Memory = NTMMemory | DNCMemory
MEMORIES: dict[str, type[Memory]] = {"ntm": NTMMemory, "dnc": DNCMemory}  # in the order of slot_memory.cpp


def slot_memory(
    x: Tensor,
    w_ih: Tensor,
    b: Tensor | None,
    w: Tensor,
    interface_weight: Tensor,
    interface_bias: Tensor,
    state: Tensor,
    fresh: Tensor | None,
    write: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    memory: str,
    sizes: list[int],
    controller: str,
    has_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Run all steps.

    T steps, B batch size, X inputs, N units of the controller, R read heads, C slots of width W, K outputs for the
    memory. G are the rows of the controller's weights, 4N of an LSTM and N of a feedforward controller. V are the
    numbers that they read besides the inputs: h, if the controller is an LSTM, and the read vectors. S are all numbers
    of a state.

    Args:
        x: (T, B, X).
        w_ih, b: (G, X), of the inputs, and (G,) or None.
        w: (G, V).
        interface_weight, interface_bias: (K, N) and (K,).
        state: (B, S) before the first step; see `flatten`.
        fresh: (S,), the state to which `starts` resets rows, or None.
        write, lengths, starts: See `gyral.ops.slot_memory.slot_memory`.
        memory: A name of `MEMORIES`.
        sizes: Of the memory, the fields of its class.
        controller: One of `CONTROLLERS`.
        has_gradient: Whether kernels keep the states of all steps, for backward.

    Returns:
        outputs (T, B, N + R · W), and the state (B, S) after the last step of each sequence.
    """
    own_memory, hidden_size, flat, outputs = MEMORIES[memory](*sizes), interface_weight.shape[1], state, []
    for time, parts in enumerate(F.linear(x, w_ih, b).unbind(0)):
        before = flat
        if starts is not None and fresh is not None:
            before = torch.where(starts[time].unsqueeze(1), fresh, flat)
        leaves = unflatten(before, own_memory, controller, hidden_size)
        gates = parts + F.linear(before[:, : w.shape[1]], w)
        if controller == "lstm":
            write_gate, forget, candidate, output = gates.chunk(4, dim=1)
            cell_state = forget.sigmoid() * leaves[1] + write_gate.sigmoid() * candidate.tanh()
            hidden = output.sigmoid() * cell_state.tanh()
            own: tuple[Tensor, ...] = (hidden, cell_state)
        else:
            hidden = ACTIVATIONS[controller](gates)
            own = ()
        emitted = F.linear(hidden, interface_weight, interface_bias)
        old: Any = type(own_memory.shapes)(*leaves[len(own) + 1 :])
        read_vector, new = own_memory.step(emitted, old, None if write is None else write[time])
        output, after = torch.cat((hidden, read_vector), dim=1), flatten((*own, read_vector, *new), controller)
        if lengths is not None:
            active = (time < lengths).unsqueeze(1)
            output, after = torch.where(active, output, 0.0), torch.where(active, after, flat)
        outputs.append(output)
        flat = after
    return torch.stack(outputs), flat


def flatten(state: tuple[Tensor, ...], controller: str) -> Tensor:
    """Return a state in one row (B, S): h, the read vectors, the state of the memory, c.

    The memory itself is transposed, so that loops over its slots are loops over vectors.

    Args:
        state: h and c of an LSTM, the read vector, and the tensors of the state of the memory.
        controller: One of `CONTROLLERS`.
    """
    own = 2 if controller == "lstm" else 0
    hidden, cell_state = state[: own // 2], state[own // 2 : own]
    leaves = (*hidden, *state[own:-1], state[-1].mT, *cell_state)
    return torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)


def unflatten(flat: Tensor, memory: Memory, controller: str, hidden_size: int) -> tuple[Tensor, ...]:
    """Return the state that `flatten` takes."""
    *shapes, (slots, width) = memory.shapes
    sizes: list[Any] = [(memory.read_heads * width,), *shapes, (width, slots)]
    if controller == "lstm":
        sizes = [(hidden_size,), *sizes, (hidden_size,)]
    parts = flat.split([math.prod(size) for size in sizes], dim=1)
    leaves = [part.unflatten(1, size) for part, size in zip(parts, sizes, strict=True)]
    if controller == "lstm":
        leaves.insert(1, leaves.pop())
    return *leaves[:-1], leaves[-1].mT
