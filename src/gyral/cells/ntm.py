"""Neural Turing machine (NTM)."""

from dataclasses import field
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.initialization import uniform_
from gyral.cells.memory import SlotMemoryCell, head_names
from gyral.core.options import NonNegativeInt, OneOf, PositiveInt
from gyral.ops.slot_memory import NTMMemory

INITIAL_MEMORIES = ("constant", "learned_constant", "random", "learned")
CONSTANT_MEMORY = 1e-6


class NTMCell(SlotMemoryCell):
    """Neural Turing machine.

    Neural Turing machine (Graves, Wayne and Danihelka, "Neural Turing Machines", 2014).

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
    learned as in the code of Collier and Beel (2018), MarkPKCollier/NeuralTuringMachine on GitHub; and `initial_values`
    (C, W) if the initial memory is learned, a buffer if it is random.

    It differs from that code: there, the read heads read M_{t−1}, k has a tanh, and the constant initial memory is
    trained, which is `initial_memory="learned_constant"` here. It differs from loudinthecloud/pytorch-ntm on GitHub,
    where w_0 is 0 and r_0 is small noise that is not trained; `initial_memory="random"` is the initial memory of that
    code.

    Args:
        controller: Returns the controller for its input size and `hidden_size`, such as
            `gyral.cells.feedforward.Feedforward`; None: `LSTMCell`.
        slots: C ≥ 1, 128 in the paper.
        width: W ≥ 1, 20 in the paper.
        write_heads: Number of write heads, ≥ 1.
        max_shift: Shifts are from −max_shift to max_shift, ≥ 0.
        initial_memory: M_0: "constant" is 1e-6 everywhere, the best in the comparison of Collier and Beel (2018);
            "learned_constant" begins with these values, trained as in their code;
            "random" is uniform in ±1/√(C + W), drawn once for the cell and not trained; "learned" is the same, trained.

    Example:
        >>> import torch
        >>> from gyral import NTM, MaskedInputs
        >>> write = torch.arange(50).unsqueeze(1).expand(50, 8) < 20  # the first 20 steps
        >>> layer = NTM(16, 64, slots=32, width=8)
        >>> outputs, state = layer(MaskedInputs(torch.randn(50, 8, 16), write))
        >>> outputs.shape
        torch.Size([50, 8, 72])
    """

    vector_parameters = ("initial_weights",)

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

    memory: NTMMemory = field(init=False)

    slots = 128
    width = 20
    read_heads = 1
    write_heads: PositiveInt = 1
    max_shift: NonNegativeInt = 1
    initial_memory: Annotated[str, OneOf(INITIAL_MEMORIES)] = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        slots, width = self.slots, self.width
        self.initial_reading = nn.Parameter(torch.empty(self.heads * width))
        self.initial_weights = nn.Parameter(torch.empty(self.heads + self.write_heads, slots))
        self.initial_values: Tensor | None
        if self.initial_memory.startswith("learned"):
            self.initial_values = nn.Parameter(torch.empty(slots, width))
        else:
            is_random = self.initial_memory == "random"
            self.register_buffer("initial_values", torch.empty(slots, width) if is_random else None)
        self._initialize()

    def create_memory(self) -> NTMMemory:
        return NTMMemory(self.slots, self.width, self.heads, self.write_heads, self.max_shift)

    def reset_parameters(self) -> None:
        self.controller.reset_parameters()
        self.interface.reset_parameters()
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        nn.init.normal_(self.initial_reading)
        nn.init.normal_(self.initial_weights)
        if self.initial_values is None:
            return
        if self.initial_memory == "learned_constant":
            nn.init.constant_(self.initial_values, CONSTANT_MEMORY)
        else:
            uniform_(self.initial_values, (self.slots + self.width) ** -0.5)

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

    # ---------------------------------------------------------------- for figures

    def gates(self, outputs: Tensor) -> dict[str, Tensor]:
        """Return g of each head, the share of its weighting that is new content."""
        gates = (
            self.memory.split(self.interface(outputs[..., : self.controller.output_size])).gate.sigmoid().squeeze(-1)
        )
        return dict(zip(head_names(self.heads, self.memory.write_heads), gates.unbind(-1), strict=True))

    def weightings(self, outputs: Tensor, state: State, write: Tensor | None = None) -> dict[str, Tensor]:
        weights = torch.cat([state.read_weights, state.write_weights], dim=1)
        return dict(zip(head_names(self.heads, self.memory.write_heads), weights.unbind(1), strict=True))
