"""Neural Turing machine (NTM)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell
from gyral.cells.memory import MemoryCell, head_names
from gyral.core.checks import check_choice, check_integer
from gyral.ops.addressing import content_weighting, erase_and_add, sharpen_weighting, shift_weighting

INITIAL_MEMORIES = ("constant", "random", "learned")
CONSTANT_MEMORY = 1e-6


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


class NTMCell(MemoryCell):
    """Neural Turing machine (Graves, Wayne and Danihelka, "Neural Turing Machines", 2014).

    A controller reads from and writes to a memory M with C slots of width W. Each head has a weighting w of the slots.

        h_t = controller([x_t; r_{t−1}])
        w^c(i) = softmax_i(β cos(k, M_{t−1}(i)))                  content (equations 5 and 6)
        w^g = g w^c + (1 − g) w_{t−1}                             interpolation (equation 7)
        w̃(i) = Σ_j w^g(j) s(i − j mod C)                          shift (equation 8)
        w_t(i) = w̃(i)^γ / Σ_j w̃(j)^γ                              sharpening (equation 9)
        M_t(i) = M_{t−1}(i) ⊙ (1 − w_t(i) e) + w_t(i) a           by the write heads (equations 3 and 4)
        r_t = Σ_i w_t(i) M_t(i)                                   by each read head (equation 2)
        output = [h_t; r_t]

    k, β, g, s and γ of each head, and e and a of each write head, are linear in h_t; then come softplus for β, a
    sigmoid for g and e, softmax for s, and 1 + softplus for γ. The paper prints M_t in equation 5 too, but the
    weightings of the write heads determine M_t: here all heads address M_{t−1}, all write heads erase and then all
    add, and the read heads read M_t. Where a write mask is False, the memory and the weightings of the write heads keep
    their values. Norms and logarithms have small epsilons; see `gyral.ops.addressing`.

    Parameters: the parameters of `controller`; `interface`, the linear map, uniform in ±1/√N as `torch.nn.Linear`, with
    rows [k; β; g; s; γ] of each head, read heads before write heads, and then [e; a] of each write head;
    `initial_reading`, whose tanh is r_0, and `initial_weights`, whose softmax is w_0 of each head, both from N(0, 1),
    learned as in the code of Collier and Beel (2018); and `initial_values` (C, W) if the initial memory is learned, a
    buffer if it is random.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1, the hidden size of the controller.
        controller: Returns the controller for its input size and `hidden_size`, such as
            `gyral.cells.feedforward.Feedforward`; None: `LSTMCell`.
        slots: C ≥ 1, 128 in the paper.
        width: W ≥ 1, 20 in the paper.
        read_heads: Number of read heads, ≥ 1.
        write_heads: Number of write heads, ≥ 1.
        max_shift: Shifts are from −max_shift to max_shift, ≥ 0.
        initial_memory: M_0: "constant" is 1e-6 everywhere, the best in the comparison of Collier and Beel (2018);
            "random" is uniform in ±1/√(C + W), drawn once for the cell and not trained; "learned" is the same, trained.

    Raises:
        OptionError: An option is out of bounds or has another type.
    """

    class State(NamedTuple):
        """State of the controller, and the memory. C is the number of slots.

        Attributes:
            controller: State of the controller.
            read_vector: (B, read heads · W).
            read_weights: (B, read heads, C).
            write_weights: (B, write heads, C).
            memory: (B, C, W).
        """

        controller: Any
        read_vector: Tensor
        read_weights: Tensor
        write_weights: Tensor
        memory: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        controller: Callable[..., RecurrentCell] | None = None,
        slots: int = 128,
        width: int = 20,
        read_heads: int = 1,
        write_heads: int = 1,
        max_shift: int = 1,
        initial_memory: str = "constant",
    ) -> None:
        check_integer("read_heads", read_heads)
        super().__init__(input_size, hidden_size, width=width, heads=read_heads, controller=controller)
        self.slots = check_integer("slots", slots)
        self.write_heads = check_integer("write_heads", write_heads)
        self.max_shift = check_integer("max_shift", max_shift, minimum=0)
        self.initial_memory = check_choice("initial_memory", initial_memory, INITIAL_MEMORIES)
        heads, controlled = read_heads + write_heads, self.controller.output_size
        self.address_sizes = [width, 1, 1, 2 * max_shift + 1, 1]
        self.interface = nn.Linear(controlled, heads * sum(self.address_sizes) + write_heads * 2 * width)
        self.output_size = controlled + read_heads * width
        self.initial_reading = nn.Parameter(torch.empty(read_heads * width))
        self.initial_weights = nn.Parameter(torch.empty(heads, slots))
        self.initial_values: Tensor | None
        if initial_memory == "learned":
            self.initial_values = nn.Parameter(torch.empty(slots, width))
        else:
            self.register_buffer("initial_values", torch.empty(slots, width) if initial_memory == "random" else None)
        self._initialize()

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        self.controller.reset_parameters()  # type: ignore[operator]
        self.interface.reset_parameters()
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        nn.init.normal_(self.initial_reading)
        nn.init.normal_(self.initial_weights)
        if self.initial_values is not None:
            bound = (self.slots + self.width) ** -0.5
            nn.init.uniform_(self.initial_values, -bound, bound)

    def init_state(self, batch_size: int) -> State:
        weights = self.initial_weights.softmax(-1).expand(batch_size, -1, -1)
        memory = self.initial_values
        if memory is None:
            memory = torch.full_like(self.initial_weights[:1, :1], CONSTANT_MEMORY).expand(self.slots, self.width)
        return self.State(
            self.controller.init_state(batch_size),
            self.initial_reading.tanh().expand(batch_size, -1),
            weights[:, : self.heads],
            weights[:, self.heads :],
            memory.expand(batch_size, -1, -1),
        )

    def use_memory(self, hidden: Tensor, controller: Any, state: State, write: Tensor | None) -> State:
        heads = self.split(self.interface(hidden))
        before = torch.cat([state.read_weights, state.write_weights], dim=1)
        read_weights, write_weights = self.address(heads, before, state.memory).split([self.heads, self.write_heads], 1)
        memory = erase_and_add(state.memory, write_weights, heads.erase.sigmoid(), heads.add)
        if write is not None:
            allowed = write.view(-1, 1, 1)
            memory = torch.where(allowed, memory, state.memory)
            write_weights = torch.where(allowed, write_weights, state.write_weights)
        read_vector = torch.bmm(read_weights, memory).flatten(1)
        return self.State(controller, read_vector, read_weights, write_weights, memory)

    def split(self, interface: Tensor) -> Heads:
        """Return the parts of the outputs of `interface` (…, rows), before any activation."""
        heads, size = self.heads + self.write_heads, sum(self.address_sizes)
        addresses, writes = interface.tensor_split([heads * size], dim=-1)
        erase, add = writes.unflatten(-1, (self.write_heads, -1)).chunk(2, dim=-1)
        key, strength, gate, shift, power = addresses.unflatten(-1, (heads, size)).split(self.address_sizes, dim=-1)
        return Heads(key, strength, gate, shift, power, erase, add)

    def address(self, heads: Heads, before: Tensor, memory: Tensor) -> Tensor:
        """Return the new weightings (B, H, C) of all heads from those before and from the memory (B, C, W)."""
        content = content_weighting(heads.key, F.softplus(heads.strength), memory)
        weights = torch.lerp(before, content, heads.gate.sigmoid())
        weights = shift_weighting(weights, heads.shift.softmax(-1))
        return sharpen_weighting(weights, 1 + F.softplus(heads.power))

    # ---------------------------------------------------------------- for figures

    def gates(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return g of each head, the share of its weighting that is new content."""
        gates = self.split(self.interface(outputs[..., : self.controller.output_size])).gate.sigmoid().squeeze(-1)
        return dict(zip(head_names(self.heads, self.write_heads), gates.unbind(-1), strict=True))

    def weightings(self, outputs: Tensor, state: State) -> dict[str, Tensor]:
        weights = torch.cat([state.read_weights, state.write_weights], dim=1)
        return dict(zip(head_names(self.heads, self.write_heads), weights.unbind(1), strict=True))
