"""Differentiable neural computer (DNC)."""

from dataclasses import field
from typing import Annotated, Any, NamedTuple

from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.cells.memory import SlotMemoryCell, head_names
from gyral.core.options import OneOf
from gyral.ops.slot_memory import DNCCodeMemory, DNCMemory

EQUATIONS = ("paper", "code")
LARGEST = 20.0  # of the state of the controller with the equations of the code


class DNCCell(SlotMemoryCell):
    """Differentiable neural computer.

    Differentiable neural computer (Graves et al., "Hybrid computing using a neural network with dynamic external
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

    It differs from the authors' code (google-deepmind/dnc on GitHub, `addressing.py`, `access.py` and `dnc.py`). With
    `equations="code"`, three differences are gone:

    * the strengths are softplus, without the 1;
    * the write weightings w^w_{t−1} have no gradient by way of the usage;
    * the state of the controller and h_t are clipped to ±20. That code also clips the output of the whole network,
      which is that of a linear layer after this cell.

    What remains has little or no effect: that code has the read modes in the order backward, forward, content, allows
    several write heads, and adds its epsilon to norms in another way.

    A step costs O(C²) per row for the links, and training keeps them for each step.

    Parameters: the parameters of `controller`; `interface`, the linear map, uniform in ±1/√N as `torch.nn.Linear`, with
    rows [k^r of all read heads; β^r; k^w; β^w; e; v; f; g^a; g^w; π of all read heads], as in the paper, and a bias.

    Args:
        read_heads: R ≥ 1. There is one write head.
        equations: "paper", or "code", for which there is no kernel: a loop in PyTorch runs it.

    Example:
        >>> import torch
        >>> from gyral import DNC, MaskedInputs
        >>> write = torch.arange(50).unsqueeze(1).expand(50, 8) < 20  # the first 20 steps
        >>> layer = DNC(16, 64, slots=8, width=8, read_heads=2)
        >>> outputs, state = layer(MaskedInputs(torch.randn(50, 8, 16), write))
        >>> outputs.shape
        torch.Size([50, 8, 80])
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

    memory: DNCMemory = field(init=False)

    width = 16
    equations: Annotated[str, OneOf(EQUATIONS)] = "paper"

    def __post_init__(self) -> None:
        self.estimates_gradient = self.equations == "code"  # it stops at the usage
        super().__post_init__()

    def create_memory(self) -> DNCMemory:
        memory = DNCMemory if self.equations == "paper" else DNCCodeMemory
        return memory(self.slots, self.width, self.heads)

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

    def use_memory(self, hidden: Tensor, controller: Any, state: Any, write: Tensor | None) -> Any:
        if self.equations == "code":
            hidden, controller = tree_map(_clip, (hidden, controller))
        return super().use_memory(hidden, controller, state, write)

    def output(self, hidden: Tensor, state: Any) -> Tensor:
        return super().output(hidden if self.equations == "paper" else _clip(hidden), state)

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        if self.equations == "code":
            return "equations=code has no fused path within DNCCell"
        return super().fused_unsupported_reason(starts=starts)

    # ---------------------------------------------------------------- for figures

    def gates(self, outputs: Tensor) -> dict[str, Tensor]:
        interface = self.memory.split(self.interface(outputs[..., : self.controller.output_size]))
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

    def weightings(self, outputs: Tensor, state: State, write: Tensor | None = None) -> dict[str, Tensor]:
        names = head_names(self.heads, 1)
        return dict(zip(names, [*state.read_weights.unbind(1), state.write_weights], strict=True))


def _clip(values: Tensor) -> Tensor:
    return values.clamp(-LARGEST, LARGEST)
