"""S4D: a diagonal state space for each channel."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import HiddenState, State
from gyral.cells.diagonal import WidthPreservingCell
from gyral.cells.initialization import STEP_SIZES
from gyral.core.options import PositiveInt
from gyral.ops.channel_scan import channel_scan, channel_state_space, discretized
from gyral.ops.channel_scan.naive import read
from gyral.ops.scan import Shared


class Constants(NamedTuple):
    """λ and 2 C ⊙ B̄, each (2, N, P), real and imaginary parts."""

    eigenvalues: Shared
    readout: Shared


class S4DCell(WidthPreservingCell):
    """Diagonal state space of each channel.

    Diagonal state space of each channel (Gu, Gupta, Goel and Ré, "On the parameterization and initialization of
    diagonal state space models", NeurIPS 2022, S4D-Lin with zero-order hold).

        A = −exp(log_A_real) + i A_imag,  λ = exp(ΔA),  B̄ = (λ − 1) / A
        h_{t,c} = λ_c ⊙ h_{t−1,c} + x_{t,c}                       P complex numbers for each of the N channels
        y_{t,c} = 2 Re(Σ_p C_{c,p} B̄_{c,p} h_{t,c,p}) + D_c x_{t,c}

    Each number stands for itself and its conjugate, hence the factor 2. x_t is the input, or W_ih times the input if
    its size is not N; see `gyral.cells.diagonal.WidthPreservingCell`. The layers after y_t, GELU, a matrix and a gated
    linear unit, belong to the block around the cell. The state (B, 2NP) has the real parts of all channels, then the
    imaginary parts.

    Parameters and initial values: `log_A_real` (N, P), log ½; `A_imag` (N, P), πp with p from 0; `log_dt` log Δ (N,)
    uniform in [log 0.001, log 0.1]; `C` (2, N, P), real and imaginary parts, normal / √2; `D` (N,), normal.

    State:
        One tensor (B, 2NP): the real parts of all channels, then their imaginary parts.

    Args:
        hidden_size: N ≥ 1, the number of channels.
        state_size: P, the number of complex numbers in the state of a channel.

    Example:
        >>> layer = S4D(16, 64, state_size=8)
    """

    fused_operator = channel_state_space
    scan_operator = channel_scan
    no_decay_parameters = ("log_A_real", "A_imag", "log_dt")
    is_complex = True

    state_size: PositiveInt = 32

    def __post_init__(self) -> None:
        super().__post_init__()
        size, each = self.hidden_size, self.state_size
        self.state_size = size * each
        self.log_A_real = nn.Parameter(torch.empty(size, each))
        self.A_imag = nn.Parameter(torch.empty(size, each))
        self.log_dt = nn.Parameter(torch.empty(size))
        self.C = nn.Parameter(torch.empty(2, size, each))
        self.D = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.log_A_real.fill_(math.log(0.5))
        self.A_imag.copy_(
            math.pi * torch.arange(self.A_imag.shape[1], device=self.A_imag.device).expand_as(self.A_imag)
        )
        self.log_dt.uniform_(*map(math.log, STEP_SIZES))
        self.C.normal_(std=math.sqrt(0.5))
        self.D.normal_()

    def sequence_constants(self, *shape: int) -> Constants:
        parts = self.to_state_dtype(self.log_A_real, self.A_imag, self.log_dt, self.C)
        return Constants(*map(Shared, discretized(*parts)))

    def project(self, inputs: Tensor) -> Tensor:
        return self.project_inputs(inputs)

    def coefficients(self, projected: Tensor, constants: Constants) -> tuple[Tensor, Tensor]:
        real = projected.to(self.state_dtype).unsqueeze(-1).expand(*projected.shape, self.C.shape[2])
        return constants.eigenvalues.value.flatten(), torch.stack((real, torch.zeros_like(real)), dim=-3).flatten(-3)

    def read(self, hidden: Tensor, projected: Tensor, constants: Constants) -> Tensor:
        outputs = read(hidden.unflatten(-1, self.C.shape), constants.readout.value)
        return self.to_parameter_dtype(outputs) + self.D * projected

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        parameters = self.log_A_real, self.A_imag, self.log_dt, self.C, self.D
        parts = self.to_state_dtype(self.project_inputs(inputs), *parameters, state.hidden)
        outputs, final = channel_state_space(*parts, lengths, starts)
        return self.to_parameter_dtype(outputs), HiddenState(final)
