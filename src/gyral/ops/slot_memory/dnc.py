"""The memory of a differentiable neural computer (DNC): its sizes and its step in plain torch."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.addressing import allocation_weighting, content_weighting, erase_and_add, update_links


class Interface(NamedTuple):
    """The outputs of the controller at a step, before any activation; R read heads.

    Attributes:
        read_key: (…, R, W).
        read_strength: (…, R, 1).
        write_key: (…, 1, W).
        write_strength: (…, 1, 1).
        erase, write: (…, 1, W), the erase and write vectors.
        free: (…, R, 1), the free gates.
        allocation_gate, write_gate: (…, 1).
        modes: (…, R, 3), for the reads backward, by content and forward.
    """

    read_key: Tensor
    read_strength: Tensor
    write_key: Tensor
    write_strength: Tensor
    erase: Tensor
    write: Tensor
    free: Tensor
    allocation_gate: Tensor
    write_gate: Tensor
    modes: Tensor


class DNCState(NamedTuple):
    """The last fields of `gyral.cells.dnc.DNCCell.State`."""

    read_weights: Tensor
    write_weights: Tensor
    usage: Tensor
    precedence: Tensor
    links: Tensor
    memory: Tensor


class DNCMemory(NamedTuple):
    """The sizes of the memory of `gyral.cells.dnc.DNCCell`, whose options they are, and its step: that of the paper."""

    slots: int
    width: int
    read_heads: int

    @property
    def sizes(self) -> list[int]:
        """Sizes of the parts of `Interface`."""
        heads, width = self.read_heads, self.width
        return [heads * width, heads, width, 1, width, width, heads, 1, 1, 3 * heads]

    @property
    def outputs_size(self) -> int:
        """Number of outputs of the controller for the memory."""
        return sum(self.sizes)

    @property
    def shapes(self) -> DNCState:
        """Shapes of the tensors of a state, without the batch."""
        slots = self.slots
        shapes = (self.read_heads, slots), (slots,), (slots,), (slots,), (slots, slots), (slots, self.width)
        return DNCState(*shapes)  # type: ignore[arg-type]

    @property
    def multiplications(self) -> int:
        """Number of multiplications in the products of a step: keys, reads and writes, links and reads along them."""
        slots, heads = self.slots, self.read_heads
        return slots * self.width * (2 * heads + 3) + slots * slots * (2 * heads + 1)

    def step(self, outputs: Tensor, state: DNCState, write: Tensor | None) -> tuple[Tensor, DNCState]:
        """Return the read vector (B, R · W) and the state after a step.

        Args:
            outputs: (B, outputs_size), of the controller.
            state: The state before the step.
            write: (B,) bool or None, whether the memory may be written.
        """
        interface = self.split(outputs)
        interface = interface._replace(
            read_strength=self.strength(interface.read_strength), write_strength=self.strength(interface.write_strength)
        )
        usage = self.usage(state, interface.free.sigmoid())
        write_weights = address_write(interface, usage, state.memory, write)
        memory = erase_and_add(state.memory, write_weights.unsqueeze(1), interface.erase.sigmoid(), interface.write)
        links = update_links(state.links, state.precedence, write_weights)
        precedence = torch.addcmul(write_weights, 1 - write_weights.sum(-1, keepdim=True), state.precedence)
        read_weights = address_reads(interface, links, state.read_weights, memory)
        read_vector = torch.bmm(read_weights, memory).flatten(1)
        return read_vector, DNCState(read_weights, write_weights, usage, precedence, links, memory)

    def strength(self, outputs: Tensor) -> Tensor:
        """Return the strengths β from the outputs of the controller."""
        return 1 + F.softplus(outputs)

    def usage(self, state: DNCState, free: Tensor) -> Tensor:
        """Return the usage u_t (B, C) before the write of a step, from the state before the step.

        Args:
            state: See `DNCState`.
            free: f (B, R, 1), in [0, 1], the free gates.
        """
        used = state.usage + state.write_weights - state.usage * state.write_weights
        retained = 1 - free * state.read_weights
        for head in retained.unbind(1):  # `prod` would need a slower gradient, for factors that may be zero
            used = used * head
        return used

    def split(self, outputs: Tensor) -> Interface:
        """Return the parts of the outputs (…, outputs_size) of the controller, before any activation."""
        parts = dict(zip(Interface._fields, outputs.split(self.sizes, dim=-1), strict=True))
        heads = dict.fromkeys(("read_key", "read_strength", "free", "modes"), self.read_heads)
        heads |= dict.fromkeys(("write_key", "write_strength", "erase", "write"), 1)
        return Interface(**parts | {name: parts[name].unflatten(-1, (count, -1)) for name, count in heads.items()})


class DNCCodeMemory(DNCMemory):
    """The memory of `gyral.cells.dnc.DNCCell` with `equations="code"`, which has no kernel."""

    __slots__ = ()

    def strength(self, outputs: Tensor) -> Tensor:
        return F.softplus(outputs)

    def usage(self, state: DNCState, free: Tensor) -> Tensor:
        return super().usage(state._replace(write_weights=state.write_weights.detach()), free)


def address_write(interface: Interface, usage: Tensor, memory: Tensor, write: Tensor | None) -> Tensor:
    """Return the write weighting (B, C) from the new usage (B, C) and the memory (B, C, W) before the step."""
    content = content_weighting(interface.write_key, interface.write_strength, memory).squeeze(1)
    weights = torch.lerp(content, allocation_weighting(usage), interface.allocation_gate.sigmoid())
    gate = interface.write_gate.sigmoid()
    return weights * (gate if write is None else gate * write.unsqueeze(-1))


def address_reads(interface: Interface, links: Tensor, before: Tensor, memory: Tensor) -> Tensor:
    """Return the read weightings (B, R, C) from those before, from the new links and from the new memory."""
    content = content_weighting(interface.read_key, interface.read_strength, memory)
    backward, by_content, forward = interface.modes.softmax(-1).split(1, dim=-1)
    linked = torch.baddbmm(by_content * content, backward * before, links)  # wᵀL = (Lᵀw)ᵀ
    return torch.baddbmm(linked, forward * before, links.transpose(1, 2))
