"""The arguments of `gyral.ops.slot_memory`, and the forms of its states.

T steps, B batch size, X inputs, N units of the controller, R read heads, C slots of width W, K outputs for the memory.
G are the rows of the controller's weights, 4N of an LSTM and N of a feedforward controller. V are the numbers that
they read besides the inputs: h, if the controller is an LSTM, and the read vectors. S are all numbers of a state.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.ops.slot_memory.dnc import DNCMemory
from gyral.ops.slot_memory.ntm import NTMMemory

CONTROLLERS = ("lstm", "tanh", "relu")  # in the order of slot_memory.cpp
Memory = NTMMemory | DNCMemory


class FixedArguments(NamedTuple):
    """The arguments of a sequence that have no gradient; see `gyral.ops.slot_memory.run`."""

    memory: Memory
    controller: str
    write: Tensor | None
    lengths: Tensor | None
    starts: Tensor | None


class Tensors(NamedTuple):
    """The arguments of a sequence that have a gradient.

    Attributes:
        inputs: (T, B, X).
        weight_x: (G, X), of the inputs.
        bias: (G,) or None.
        weight: (G, V).
        interface_weight, interface_bias: (K, N) and (K,).
        state: (B, S) before the first step; see `flatten`.
        fresh: (S,), the state to which `starts` resets rows, or None.
    """

    inputs: Tensor
    weight_x: Tensor
    bias: Tensor | None
    weight: Tensor
    interface_weight: Tensor
    interface_bias: Tensor
    state: Tensor
    fresh: Tensor | None


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
