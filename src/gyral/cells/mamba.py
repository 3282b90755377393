"""Mamba: a state space whose step sizes and matrices depend on the input."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.heads import share
from gyral.cells.initialization import draw_step_sizes_, fan_in_uniform_, uniform_
from gyral.cells.short_convolution import ConvolvedCell
from gyral.core.options import PositiveInt, Range, derived
from gyral.ops.selective_scan import coefficients, rates, selective_scan, selective_state_space, step_sizes


class Projected(NamedTuple):
    """The inputs v_t of the convolution and the gates z_t before SiLU, each (…, N)."""

    values: Tensor
    gate: Tensor


class MambaCell(ConvolvedCell):
    """Mamba, without the matrix after the recurrence.

    Mamba (Gu and Dao, "Mamba: linear-time sequence modeling with selective state spaces", 2023, S6).

        [v_t; z_t] = W_ih x_t
        u_t = SiLU(Σ_{j=1}^{K} w_j ⊙ v_{t−K+j} + b_w)             values before the first step are zero
        [δ_t; B_t; C_t] = W_x u_t,  Δ_t = softplus(W_Δ δ_t + b_Δ)
        h_{t,c} = exp(Δ_{t,c} A_c) ⊙ h_{t−1,c} + Δ_{t,c} u_{t,c} B_t          S numbers for each channel c
        y_{t,c} = (C_tᵀ h_{t,c} + D_c u_{t,c}) SiLU(z_{t,c})

    with A = −exp(A_log). The output is y_t. The published layer has inputs of half the width, N = 2X, and a matrix
    after y_t, which belongs to the block around the cell; see `gyral.nn.block.PreNormBlock`. The authors do not apply
    weight decay to A_log and D.

    Parameters and initial values: `weight_ih` (2N, X), rows [v; z], and `weight_x` (R + 2S, N), rows [δ; B; C], uniform
    in ±1/√inputs; `weight_conv` (N, K) and `bias_conv` (N,), uniform in ±1/√K; `weight_dt` W_Δ (N, R), uniform in
    ±1/√R; `bias_dt` (N,), the inverse of softplus at step sizes whose logarithm is uniform in [log 0.001, log 0.1];
    `A_log` (N, S), log 1 … log S; `D` (N,), one.

    Args:
        hidden_size: N ≥ 1, the number of channels.
        state_size: S, the number of states of a channel.
        kernel_size: K ≥ 2, the number of steps in the window of the convolution.
        dt_rank: R, the rank of the step sizes; ⌈N / 32⌉ if None.

    Example:
        >>> layer = Mamba(16, 32, state_size=8)
    """

    fused_operator = selective_state_space
    scan_operator = selective_scan
    no_decay_parameters = ("A_log", "bias_dt")

    class State(NamedTuple):
        """h (B, N, S), and the last K − 1 inputs of the convolution (B, K − 1, N), the latest last."""

        hidden: Tensor
        window: Tensor

    state_size: PositiveInt = 16
    kernel_size: Annotated[int, Range(2)] = 4
    dt_rank: PositiveInt = derived(default=None)

    def __post_init__(self) -> None:
        self.dt_rank = self.dt_rank or share(self.hidden_size, 32)
        size, states, rank = self.hidden_size, self.state_size, self.dt_rank
        self.weight_ih = nn.Parameter(torch.empty(2 * size, self.input_size))
        self.create_convolution([size], self.kernel_size, bias=True)
        self.weight_x = nn.Parameter(torch.empty(rank + 2 * states, size))
        self.weight_dt = nn.Parameter(torch.empty(size, rank))
        self.bias_dt = nn.Parameter(torch.empty(size))
        self.A_log = nn.Parameter(torch.empty(size, states))
        self.D = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        fan_in_uniform_(self.weight_ih, self.weight_x, self.weight_dt, self.weight_conv)
        uniform_(self.bias_conv, self.weight_conv.shape[1] ** -0.5)
        draw_step_sizes_(self.bias_dt)
        self.A_log.copy_(torch.log(torch.arange(1, self.state_size + 1, device=self.A_log.device)))
        self.D.fill_(1.0)

    def init_state(self, batch_size: int) -> State:
        hidden = self.zeros(batch_size, self.hidden_size, self.state_size, dtype=self.state_dtype)
        return self.State(hidden, self.init_window(batch_size))

    def project(self, inputs: Tensor) -> Projected:
        return Projected(*(F.linear(inputs, weight).to(self.D.dtype) for weight in self.weight_ih.chunk(2)))

    def select(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Return W_Δ δ (…, N) in the dtype `state_dtype`, and [B; C] (…, 2S), for u (…, N)."""
        of_step, of_matrices = self.weight_x.split([self.dt_rank, 2 * self.state_size])
        return self.precise_linear(self.precise_linear(u, of_step), self.weight_dt), F.linear(u, of_matrices)

    def step(self, projected: Projected, state: State, constants: object) -> tuple[Tensor, State]:
        (u,), state = self.convolve_step(projected.values, state)
        step, matrices, rate, bias, entered, before = self.to_state_dtype(
            *self.select(u), self.A_log, self.bias_dt, u, state.hidden
        )
        b, c = matrices.chunk(2, dim=-1)
        decay, values = coefficients(entered, step_sizes(step, bias), rates(rate), b)
        hidden = decay * before + values
        output = self.to_parameter_dtype((hidden * c.unsqueeze(1)).sum(2)) + self.D * u
        return output * F.silu(projected.gate), state._replace(hidden=hidden)

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        values, gate = self.project(inputs)
        (u,), state = self.convolve(values, state, lengths, starts)
        parts = self.to_state_dtype(u, gate, *self.select(u), self.A_log, self.bias_dt, self.D, state.hidden)
        outputs, hidden = selective_state_space(*parts, lengths, starts)
        return self.to_parameter_dtype(outputs), state._replace(hidden=hidden)
