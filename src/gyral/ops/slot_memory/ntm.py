"""The memory of a neural Turing machine (NTM): its sizes and its step in plain torch."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.addressing import content_weighting, erase_and_add, sharpen_weighting, shift_weighting


class Heads(NamedTuple):
    """The outputs of the controller at a step, before any activation; H heads, read heads before write heads.

    Attributes:
        key: k (…, H, W).
        strength, gate, power: β, g and γ (…, H, 1).
        shift: s (…, H, 2 · max_shift + 1).
        erase, add: e and a (…, write heads, W).
    """

    key: Tensor
    strength: Tensor
    gate: Tensor
    shift: Tensor
    power: Tensor
    erase: Tensor
    add: Tensor


class NTMState(NamedTuple):
    """The last fields of `gyral.cells.ntm.NTMCell.State`."""

    read_weights: Tensor
    write_weights: Tensor
    memory: Tensor


class NTMMemory(NamedTuple):
    """The sizes of the memory of `gyral.cells.ntm.NTMCell`, whose options they are, and its step."""

    slots: int
    width: int
    read_heads: int
    write_heads: int
    max_shift: int

    @property
    def head_sizes(self) -> list[int]:
        """Sizes of key, strength, gate, shift and power of a head."""
        return [self.width, 1, 1, 2 * self.max_shift + 1, 1]

    @property
    def outputs_size(self) -> int:
        """Number of outputs of the controller for the memory."""
        return (self.read_heads + self.write_heads) * sum(self.head_sizes) + self.write_heads * 2 * self.width

    @property
    def shapes(self) -> NTMState:
        """Shapes of the tensors of a state, without the batch."""
        shapes = (self.read_heads, self.slots), (self.write_heads, self.slots), (self.slots, self.width)
        return NTMState(*shapes)  # type: ignore[arg-type]

    @property
    def multiplications(self) -> int:
        """Number of multiplications in the products of a step: keys of all heads, reads, erased and added vectors."""
        return self.slots * self.width * (2 * self.read_heads + 3 * self.write_heads)

    def step(self, outputs: Tensor, state: NTMState, write: Tensor | None) -> tuple[Tensor, NTMState]:
        """Return the read vector (B, read heads · W) and the state after a step.

        Args:
            outputs: (B, outputs_size), of the controller.
            state: The state before the step.
            write: (B,) bool or None, whether the memory may be written.
        """
        heads = self.split(outputs)
        before = torch.cat([state.read_weights, state.write_weights], dim=1)
        weights = self.address(heads, before, state.memory)
        read_weights, write_weights = weights.split([self.read_heads, self.write_heads], dim=1)
        memory = erase_and_add(state.memory, write_weights, heads.erase.sigmoid(), heads.add)
        if write is not None:
            allowed = write.view(-1, 1, 1)
            memory = torch.where(allowed, memory, state.memory)
            write_weights = torch.where(allowed, write_weights, state.write_weights)
        return torch.bmm(read_weights, memory).flatten(1), NTMState(read_weights, write_weights, memory)

    def split(self, outputs: Tensor) -> Heads:
        """Return the parts of the outputs (…, outputs_size) of the controller, before any activation."""
        heads, size = self.read_heads + self.write_heads, sum(self.head_sizes)
        addresses, writes = outputs.tensor_split([heads * size], dim=-1)
        erase, add = writes.unflatten(-1, (self.write_heads, -1)).chunk(2, dim=-1)
        key, strength, gate, shift, power = addresses.unflatten(-1, (heads, size)).split(self.head_sizes, dim=-1)
        return Heads(key, strength, gate, shift, power, erase, add)

    def address(self, heads: Heads, before: Tensor, memory: Tensor) -> Tensor:
        """Return the new weightings (B, H, C) of all heads from those before and from the memory (B, C, W)."""
        content = content_weighting(heads.key, F.softplus(heads.strength), memory)
        weights = torch.lerp(before, content, heads.gate.sigmoid())
        weights = shift_weighting(weights, heads.shift.softmax(-1))
        return sharpen_weighting(weights, 1 + F.softplus(heads.power))
