"""RG-LRU: a linear recurrence whose decay is gated."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.diagonal import WidthPreservingCell
from gyral.cells.heads import check_heads, share
from gyral.cells.initialization import draw_wide
from gyral.core.options import PositiveInt
from gyral.ops.min_gated import rg_lru
from gyral.ops.min_gated.naive import gate_products, rg_lru_coefficients, rg_lru_gates


class Projected(NamedTuple):
    """log a_t and i_t ⊙ x_t, each (…, N)."""

    log_decay: Tensor
    gated: Tensor


class RGLRUCell(WidthPreservingCell):
    """Real-gated linear recurrent unit of Griffin.

    Real-gated linear recurrent unit (De et al., "Griffin: mixing gated linear recurrences with local attention for
    efficient language models", 2024, section 2.4).

        r_t = σ(W_a x_t + b_a),  i_t = σ(W_x x_t + b_x)
        log a_t = −8 r_t ⊙ softplus(Λ)
        h_t = a_t ⊙ h_{t−1} + √(1 − a_t²) ⊙ (i_t ⊙ x_t)           at the first step h_t = i_t ⊙ x_t

    The first step is that of a sequence or of a segment (`starts`), so the state has a flag for it. W_a and W_x are
    block-diagonal. The gradient of the square root is at most 1000, as in the authors' code. x_t is the input, or W_ih
    times the input if its size is not N; see `gyral.cells.diagonal.WidthPreservingCell`. The convolution before this
    recurrence and the gate after it in Griffin's block are not part of the cell. The output is h_t.

    Parameters and initial values: `weight` (2, H, b, b), the blocks of W_a and W_x, normal / √b with b = ⌈N / H⌉;
    `bias` (2, N), zero; `decay` Λ (N,) with softplus(Λ) = −log ρ and ρ² uniform in [0.9², 0.999²].

    Args:
        heads: H, the number of blocks, from 1 to N. If H does not divide N, the last blocks are not full. The published
            models have blocks of 256.

    Example:
        >>> layer = RGLRU(16, 64, heads=4)
    """

    fused_operator = rg_lru
    no_decay_parameters = ("decay",)

    class State(NamedTuple):
        """h (B, N), and 1 before the first step, else 0: (B,), int64."""

        hidden: Tensor
        fresh: Tensor

    heads: PositiveInt = 1

    def check(self) -> None:
        check_heads(self.heads, self.hidden_size)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.state_size = self.hidden_size
        self.block = share(self.hidden_size, self.heads)
        self.weight = nn.Parameter(torch.empty(2, self.heads, self.block, self.block))
        self.bias = nn.Parameter(torch.empty(2, self.hidden_size))
        self.decay = nn.Parameter(torch.empty(self.hidden_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.weight.normal_(std=self.block**-0.5)
        self.bias.zero_()
        squared = draw_wide(self.decay, 0.9**2, 0.999**2)
        self.decay.copy_(torch.log(torch.expm1(-0.5 * torch.log(squared))))

    def init_state(self, batch_size: int) -> State:
        hidden = self.zeros(batch_size, self.hidden_size, dtype=self.state_dtype)
        return self.State(hidden, torch.ones(batch_size, dtype=torch.int64, device=hidden.device))

    def project(self, inputs: Tensor) -> Projected:
        entered = self.project_inputs(inputs)
        products = gate_products(entered, self.weight)
        return Projected(*rg_lru_gates(entered, *self.to_state_dtype(products, self.bias, self.decay)))

    def coefficients(self, projected: Projected, is_first: Tensor) -> tuple[Tensor, Tensor]:
        """Return a_t and b_t (…, N), with a_t = 0 and b_t = i_t ⊙ x_t where `is_first` (…) is True."""
        return rg_lru_coefficients(*projected, is_first)

    def step(self, projected: Projected, state: State, constants: object) -> tuple[Tensor, State]:
        decay, values = self.coefficients(projected, state.fresh > 0)
        hidden = decay * state.hidden.to(self.state_dtype) + values
        return self.to_parameter_dtype(hidden), self.State(hidden, torch.zeros_like(state.fresh))

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        parts = self.to_state_dtype(self.project_inputs(inputs), self.weight, self.bias, self.decay, state.hidden)
        hidden, *final = rg_lru(*parts, state.fresh, lengths, starts, self.product_dtype())
        return self.to_parameter_dtype(hidden), self.State(*final)
