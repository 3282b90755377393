"""SLiCE: a linear recurrence whose matrix is block-diagonal and depends on the input."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DeclaredCell
from gyral.cells.initialization import fan_in_uniform_
from gyral.core.options import PositiveFloat, PositiveInt
from gyral.ops.block_scan import block_scan, step


class SLiCECell(DeclaredCell):
    """Structured linear controlled differential equation with a block-diagonal matrix.

    Structured linear controlled differential equation (Walker et al., "Structured linear CDEs: maximally expressive
    and parallel-in-time sequence models", 2025), with a block-diagonal matrix.

        h_t = h_{t−1} + A_t h_{t−1},  A_t = Δ (A_0 + Σ_i x_{t,i} A_i)
        h_t = W_0 x_t + b_0                                       at the first step

    The first step is that of a sequence or of a segment (`starts`), so the state has a flag for it. The matrices A_i
    have blocks of b × b numbers; if b does not divide N, the last block is smaller. The recurrence has no other term
    that depends on x_t. The output is h_t.

    Nothing bounds h_t. With the initial values and Δ = 1, its norm grows by 2 to 6 % in each step, and overflows
    float32 after some thousand steps; a second layer, which reads it, overflows within 200. For T steps, choose
    Δ ≤ 10 / T, with which the norm stays below three times the first one.

    Parameters and initial values, which are Gyral's: `weight_ih` (N b, X), the rows of A_1 … A_X without zeros, and
    `bias` (N b,), those of A_0, normal with the standard deviation 0.1 / √(b (X + 1)); `weight_initial` W_0 (N, X),
    uniform in ±1/√X, and `bias_initial` b_0 (N,), zero.

    Args:
        block_size: b ≥ 1.
        dt: Δ > 0, the time between two steps.

    Example:
        >>> layer = SLiCE(16, 64, block_size=8)
    """

    fused_operator = block_scan

    class Projected(NamedTuple):
        """The rows of A_t (…, N, b), and the hidden vector (…, N) if this is the first step."""

        change: Tensor
        initial: Tensor

    class State(NamedTuple):
        """h (B, N), and 1 before the first step, else 0: (B,), int64."""

        hidden: Tensor
        fresh: Tensor

    block_size: PositiveInt = 4
    dt: PositiveFloat = 1.0

    def __post_init__(self) -> None:
        size, rows = self.hidden_size, self.hidden_size * self.block_size
        self.weight_ih = nn.Parameter(torch.empty(rows, self.input_size))
        self.bias = nn.Parameter(torch.empty(rows))
        self.weight_initial = nn.Parameter(torch.empty(size, self.input_size))
        self.bias_initial = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        deviation = 0.1 / (self.block_size * (self.input_size + 1)) ** 0.5
        self.weight_ih.normal_(std=deviation)
        self.bias.normal_(std=deviation)
        fan_in_uniform_(self.weight_initial)
        self.bias_initial.zero_()

    def init_state(self, batch_size: int) -> State:
        hidden = self.zeros(batch_size, self.hidden_size, dtype=self.state_dtype)
        return self.State(hidden, torch.ones(batch_size, dtype=torch.int64, device=hidden.device))

    def change(self, inputs: Tensor) -> Tensor:
        """Return the rows of A_t (…, N, b)."""
        weight: Tensor = self.weight_ih
        bias: Tensor = self.bias
        if self.dt != 1:  # it multiplies the weights: they are fewer than the rows of all steps
            weight, bias = self.dt * weight, self.dt * bias
        rows = self.precise_linear(inputs, weight, bias)
        return rows.unflatten(-1, (self.hidden_size, self.block_size))

    def initial(self, inputs: Tensor) -> Tensor:
        """Return the hidden vectors (…, N) after first steps."""
        return F.linear(inputs, self.weight_initial, self.bias_initial).to(self.state_dtype)

    def project(self, inputs: Tensor) -> Projected:
        return self.Projected(self.change(inputs), self.initial(inputs))

    def step(self, projected: Projected, state: State, constants: object) -> tuple[Tensor, State]:
        hidden = step(projected.change, projected.initial, state.hidden.to(self.state_dtype), state.fresh > 0)
        return self.to_parameter_dtype(hidden), self.State(hidden, torch.zeros_like(state.fresh))

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        # without resets only the first step of the sequence can be the first one of a segment
        initial = self.initial(inputs if starts is not None else inputs[:1])
        before = state.hidden.to(self.state_dtype)
        hidden, final = block_scan(self.change(inputs), initial, before, state.fresh, lengths=lengths, starts=starts)
        return self.to_parameter_dtype(hidden), self.State(final, torch.zeros_like(state.fresh))
