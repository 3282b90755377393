"""Differentiable neural computer (DNC)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell
from gyral.cells.memory import MemoryCell, head_names
from gyral.core.checks import check_integer
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


class DNCCell(MemoryCell):
    """Differentiable neural computer (Graves et al., "Hybrid computing using a neural network with dynamic external
    memory", Nature 2016, Methods).

    A controller reads from and writes to a memory M with C slots of width W. It finds free slots by their usage u, and
    by the links L it reads slots in the order in which they were written, forward or backward.

        h_t = controller([x_t; r_{t−1}])
        u_t = (u_{t−1} + w^w_{t−1} − u_{t−1} ⊙ w^w_{t−1}) ⊙ Π_i (1 − f^i w^{r,i}_{t−1})           usage
        a[φ_j] = (1 − u_t[φ_j]) Π_{i<j} u_t[φ_i],   φ: slots from the least used                  allocation
        w^w_t = g^w (g^a a + (1 − g^a) C(M_{t−1}, k^w, β^w))                                      write weighting
        M_t = M_{t−1} ⊙ (1 − w^w_t eᵀ) + w^w_t vᵀ
        L_t[i, j] = (1 − w^w_t[i] − w^w_t[j]) L_{t−1}[i, j] + w^w_t[i] p_{t−1}[j],   L_t[i, i] = 0
        p_t = (1 − Σ_i w^w_t[i]) p_{t−1} + w^w_t                                                  precedence
        w^{r,i}_t = π_1 L_tᵀ w^{r,i}_{t−1} + π_2 C(M_t, k^{r,i}, β^{r,i}) + π_3 L_t w^{r,i}_{t−1}   read weightings
        r^i_t = M_tᵀ w^{r,i}_t
        output = [h_t; r_t]

    C(M, k, β)[i] = softmax_i(β cos(k, M[i])). All that the controller emits is linear in h_t; then come 1 + softplus
    for the strengths β, a sigmoid for the gates f, g^a and g^w and the erase vector e, and softmax for the read modes
    π. The output layer of the paper, W_y h_t + W_r r_t, is any linear layer on the output. Everything begins at zero.
    Where a write mask is False, w^w_t is zero. Norms and usages have small epsilons; see `gyral.ops.addressing`.

    A step costs O(C²) per row for the links, and training keeps them for each step.

    Parameters: the parameters of `controller`; `interface`, the linear map, uniform in ±1/√N as `torch.nn.Linear`, with
    rows [k^r of all read heads; β^r; k^w; β^w; e; v; f; g^a; g^w; π of all read heads], as in the paper, and a bias.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1, the hidden size of the controller.
        controller: Returns the controller for its input size and `hidden_size`; None: `LSTMCell`.
        slots: C ≥ 1.
        width: W ≥ 1.
        read_heads: R ≥ 1. There is one write head.

    Raises:
        OptionError: An option is out of bounds or has another type.
    """

    class State(NamedTuple):
        """State of the controller, and the memory. C is the number of slots, R that of read heads.

        Attributes:
            controller: State of the controller.
            read_vector: r (B, R · W).
            read_weights: w^r (B, R, C).
            write_weights: w^w (B, C).
            usage: u (B, C).
            precedence: p (B, C).
            links: L (B, C, C).
            memory: M (B, C, W).
        """

        controller: Any
        read_vector: Tensor
        read_weights: Tensor
        write_weights: Tensor
        usage: Tensor
        precedence: Tensor
        links: Tensor
        memory: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        controller: Callable[..., RecurrentCell] | None = None,
        slots: int = 16,
        width: int = 16,
        read_heads: int = 4,
    ) -> None:
        check_integer("read_heads", read_heads)
        super().__init__(input_size, hidden_size, width=width, heads=read_heads, controller=controller)
        self.slots = check_integer("slots", slots)
        self.sizes = [read_heads * width, read_heads, width, 1, width, width, read_heads, 1, 1, 3 * read_heads]
        self.interface = nn.Linear(self.controller.output_size, sum(self.sizes))
        self.output_size = self.controller.output_size + read_heads * width

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        self.controller.reset_parameters()  # type: ignore[operator]
        self.interface.reset_parameters()

    def init_state(self, batch_size: int) -> State:
        slots, heads = self.slots, self.heads
        return self.State(
            self.controller.init_state(batch_size),
            self.zeros(batch_size, heads * self.width),
            self.zeros(batch_size, heads, slots),
            write_weights=self.zeros(batch_size, slots),
            usage=self.zeros(batch_size, slots),
            precedence=self.zeros(batch_size, slots),
            links=self.zeros(batch_size, slots, slots),
            memory=self.zeros(batch_size, slots, self.width),
        )

    def use_memory(self, hidden: Tensor, controller: Any, state: State, write: Tensor | None) -> State:
        interface = self.split(self.interface(hidden))
        usage = update_usage(state, interface.free.sigmoid())
        write_weights = self.address_write(interface, usage, state.memory, write)
        memory = erase_and_add(state.memory, write_weights.unsqueeze(1), interface.erase.sigmoid(), interface.write)
        links = update_links(state.links, state.precedence, write_weights)
        precedence = torch.addcmul(write_weights, 1 - write_weights.sum(-1, keepdim=True), state.precedence)
        read_weights = self.address_reads(interface, links, state.read_weights, memory)
        read_vector = torch.bmm(read_weights, memory).flatten(1)
        return self.State(controller, read_vector, read_weights, write_weights, usage, precedence, links, memory)

    def split(self, outputs: Tensor) -> Interface:
        """Return the parts of the outputs (…, rows) of the linear map, before any activation."""
        parts = dict(zip(Interface._fields, outputs.split(self.sizes, dim=-1), strict=True))
        heads = dict.fromkeys(("read_key", "read_strength", "free", "modes"), self.heads)
        heads |= dict.fromkeys(("write_key", "write_strength", "erase", "write"), 1)
        return Interface(**parts | {name: parts[name].unflatten(-1, (count, -1)) for name, count in heads.items()})

    def address_write(self, interface: Interface, usage: Tensor, memory: Tensor, write: Tensor | None) -> Tensor:
        """Return the write weighting (B, C); see the class for the arguments, `write` is (B,) bool or None."""
        content = content_weighting(interface.write_key, 1 + F.softplus(interface.write_strength), memory).squeeze(1)
        weights = torch.lerp(content, allocation_weighting(usage), interface.allocation_gate.sigmoid())
        gate = interface.write_gate.sigmoid()
        return weights * (gate if write is None else gate * write.unsqueeze(-1))

    def address_reads(self, interface: Interface, links: Tensor, before: Tensor, memory: Tensor) -> Tensor:
        """Return the read weightings (B, R, C) from those before, from the new links and from the new memory."""
        content = content_weighting(interface.read_key, 1 + F.softplus(interface.read_strength), memory)
        backward, by_content, forward = interface.modes.softmax(-1).split(1, dim=-1)
        linked = torch.baddbmm(by_content * content, backward * before, links)  # wᵀL = (Lᵀw)ᵀ
        return torch.baddbmm(linked, forward * before, links.transpose(1, 2))

    # ---------------------------------------------------------------- for figures

    def gates(self, outputs: Tensor) -> dict[str, Tensor]:
        interface = self.split(self.interface(outputs[..., : self.controller.output_size]))
        free, modes = interface.free.sigmoid().squeeze(-1), interface.modes.softmax(-1)
        gates = {
            "write": interface.write_gate.sigmoid().squeeze(-1),
            "allocation": interface.allocation_gate.sigmoid().squeeze(-1),
        }
        for head, name in enumerate(head_names(self.heads, 0)):
            gates[name.replace("read", "free")] = free[..., head]
            for index, mode in enumerate(("backward", "content", "forward")):
                gates[f"{name} {mode}"] = modes[..., head, index]
        return gates

    def weightings(self, outputs: Tensor, state: State) -> dict[str, Tensor]:
        names = head_names(self.heads, 1)
        return dict(zip(names, [*state.read_weights.unbind(1), state.write_weights], strict=True))


def update_usage(state: DNCCell.State, free: Tensor) -> Tensor:
    """Return the usage u_t (B, C) before the write of a step, from the state before the step.

    Args:
        state: See `DNCCell.State`.
        free: f (B, R, 1), in [0, 1], the free gates.
    """
    used = state.usage + state.write_weights - state.usage * state.write_weights
    retained = 1 - free * state.read_weights
    for head in retained.unbind(1):  # `prod` would need a slower gradient, for factors that may be zero
        used = used * head
    return used
