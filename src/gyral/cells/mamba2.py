"""Mamba-2: a state space with one decay for each head."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.heads import share
from gyral.cells.initialization import draw_step_sizes_, uniform_
from gyral.cells.linear_attention import NormalizedMemoryCell, Operands, Readout, linear
from gyral.core.errors import OptionError
from gyral.core.options import PositiveInt, Range

DECAY_RATES = (1.0, 16.0)  # bounds of the initial −A


class Projected(NamedTuple):
    """[u_t; B_t; C_t] (…, C) before the convolution, the gates z_t (…, H V), and the step sizes Δ_t (…, H)."""

    values: Tensor
    gate: Tensor
    delta: Tensor


class Mamba2Cell(NormalizedMemoryCell):
    """Mamba-2, without the matrix after the recurrence.

    Mamba-2 (Dao and Gu, "Transformers are SSMs: generalized models and efficient algorithms through structured state
    space duality", ICML 2024, section 7).

        [z_t; u_t; B_t; C_t; δ_t] = W_ih x_t,  Δ_t = softplus(δ_t + b_Δ)
        [u_t; B_t; C_t] ← SiLU(Σ_{j=1}^{kernel_size} w_j ⊙ [u; B; C]_{t−kernel_size+j} + b_w)
        S_t = e^{Δ_t A} S_{t−1} + B_t (Δ_t u_t)ᵀ                  for each head, with A = −exp(A_log)
        y_t = RMS((S_tᵀ C_t + D u_t) ⊙ SiLU(z_t))

    The gate is applied before the normalization, RMS with ε = 10⁻⁵ over the H V / G channels of a group. The heads of a
    group share B and C. The published layer has inputs of half the width, N = 2X. The authors do not apply weight decay
    to A_log, D and b_Δ. See `gyral.cells.linear_attention.MatrixMemoryCell` for sizes.

    Parameters and initial values, with S the state size: `weight_ih` (2HV + 2GS + H, X), rows [z; u; B; C; δ],
    `weight_conv` and `bias_conv` (HV + 2GS, kernel_size) and (HV + 2GS,), uniform in ±1/√columns of the matrix; `A_log`
    (H,), log of numbers uniform in [1, 16]; `bias_dt` b_Δ (H,), the inverse of softplus at step sizes whose logarithm
    is uniform in [log 0.001, log 0.1]; `D` (H,) and `weight_norm` (H V,), one.

    State:
        A NamedTuple (memory, window): the memory matrices (B, H, state_size, V), and the last inputs of the convolution
        (B, kernel_size − 1, C), the latest last.

    Args:
        heads: H; ⌈N / 64⌉ if None.
        state_size: S ≥ 1, the size of B and C.
        groups: G, the number of different B and C; it divides H.
        kernel_size: ≥ 2, the number of steps in the window of the convolution.
        norm: Whether the output is normalized.

    Example:
        >>> layer = Mamba2(16, 64, state_size=16)
    """

    head_size = 64
    no_decay_parameters = ("A_log", "bias_dt")

    state_size: PositiveInt = 128
    groups: PositiveInt = 1
    kernel_size: Annotated[int, Range(2)] = 4
    norm: bool = True

    def check(self) -> None:
        heads = self.heads or share(self.hidden_size, self.head_size)
        if heads % self.groups != 0:
            raise OptionError("groups", self.groups, f"must divide the number of heads, {heads}")

    def __post_init__(self) -> None:
        self.key_size = self.state_size
        super().__post_init__()
        parts = self.width, self.groups * self.state_size, self.groups * self.state_size
        self.sizes = self.width, sum(parts), self.heads
        self.weight_ih = nn.Parameter(torch.empty(sum(self.sizes), self.input_size))
        self.create_convolution(parts, self.kernel_size, bias=True)
        self.A_log = nn.Parameter(torch.empty(self.heads))
        self.bias_dt = nn.Parameter(torch.empty(self.heads))
        self.D = nn.Parameter(torch.empty(self.heads))
        self.weight_norm = nn.Parameter(torch.empty(self.width)) if self.norm else None
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        uniform_(self.bias_conv, self.weight_conv.shape[1] ** -0.5)
        self.A_log.uniform_(*DECAY_RATES).log_()
        draw_step_sizes_(self.bias_dt)

    def project(self, inputs: Tensor) -> Projected:
        *others, of_step = self.weight_ih.split(self.sizes)
        gate, values = (linear(inputs, weight) for weight in others)
        return Projected(values, gate, F.softplus(self.precise_linear(inputs, of_step, self.bias_dt)))

    def operands(self, projected: Projected, values: tuple[Tensor, ...]) -> Operands:
        u, b, c = values
        b, c = (part.unflatten(-1, (self.groups, self.key_size)) for part in (b, c))
        u = u.unflatten(-1, (self.heads, self.value_size))
        decay, write = -torch.exp(self.A_log.to(self.state_dtype)) * projected.delta, projected.delta.unsqueeze(-2)
        return Operands(c, b.unsqueeze(-3), u.unsqueeze(-3), decay, write=write)

    def readout(self, projected: Projected, values: tuple[Tensor, ...]) -> Readout:
        u = values[0].unflatten(-1, (self.heads, self.value_size))
        size = self.width // self.groups
        return Readout(self.weight_norm, projected.gate, u, self.D, size, gate_first=True)
