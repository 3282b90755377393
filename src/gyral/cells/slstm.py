"""sLSTM: an LSTM with exponential gates and a normalizer."""

import math
from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.heads import heads_of_two, share
from gyral.cells.initialization import fan_in_uniform_, uniform_
from gyral.cells.short_convolution import ConvolvedCell
from gyral.core.options import PositiveInt, Range
from gyral.ops.sequences import zero_beyond
from gyral.ops.slstm import lowest_scale, naive, slstm

EPSILON = 1e-5  # added to the variance of a head


class SLSTMCell(ConvolvedCell):
    """sLSTM: an LSTM with exponential gates, without the matrix after it.

    sLSTM (Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, section 2.2), with heads.

        u_t = SiLU(Σ_{j=1}^{K} w_j ⊙ x_{t−K+j} + b_w)             inputs before the first step are zero
        i = W_i u_t + R_i y_{t−1} + b_i,  f = W_f u_t + R_f y_{t−1} + b_f
        z = W_z x_t + R_z y_{t−1} + b_z,  o = W_o x_t + R_o y_{t−1} + b_o
        m_t = max(log σ(f) + m_{t−1}, i),  f' = exp(log σ(f) + m_{t−1} − m_t),  i' = exp(i − m_t)
        c_t = f' ⊙ c_{t−1} + i' ⊙ tanh(z),  n_t = f' ⊙ n_{t−1} + i'
        y_t = σ(o) ⊙ c_t / n_t

    All W and R are block-diagonal: H heads of d = N / H units. The output is y_t, normalized in each head to mean 0 and
    variance 1, times 1 + w_y. x_t is the input, or W_ih times the input if its size is not N. The state before the
    first step has m_0 = −10³⁰, so that the first step forgets it, after a reset too. The matrix after the output and
    the feed-forward network of the published layer belong to the block around the cell.

    Parameters and initial values: `weight_ih` (N, X), uniform in ±1/√X, none if X = N; `weight_conv` (N, K) and
    `bias_conv` (N,), uniform in ±1/√K, none without a convolution; `weight_gates` W (H, 4, d, d), normal with standard
    deviation √(2 / (5N)), and `weight_hh` R (H, 4, d, d), zero, gates i, f, z, o; `bias` (4, N), zero, but b_f is
    5 − 12 (j / (d − 1))^(0.3 + 1.3 depth) for unit j of a head, counted from 0; `weight_norm` w_y (N,), zero.

    Args:
        hidden_size: N ≥ 2, the width of the layer and of its outputs; rounded up to a multiple of H.
        heads: H, the number of heads, below N. The published layers have 4.
        kernel_size: K ≥ 2, the number of steps in the window of the convolution. None: there is no convolution, and
            u_t = x_t.
        depth: Place of the layer in its stack, from 0, the first layer, to 1, the last; it sets the initial b_f.

    Example:
        >>> layer = SLSTM(16, 64, heads=2)
    """

    fused_operator = slstm

    class State(NamedTuple):
        """y, c, n and m (B, N), and the last K − 1 inputs of the convolution (B, K − 1, N), the latest last."""

        hidden: Tensor
        cell: Tensor
        normalizer: Tensor
        scale: Tensor
        window: Tensor

    heads: PositiveInt = 1
    kernel_size: Annotated[int, Range(2)] | None = 4
    depth: Annotated[float, Range(0, maximum=1)] = 0.0

    def check(self) -> None:
        heads_of_two(self.heads, self.hidden_size, self.heads)

    def __post_init__(self) -> None:
        heads, width = self.heads, share(self.hidden_size, self.heads)
        size = self.hidden_size = self.units = self.output_size = heads * width
        self.weight_ih = None if self.input_size == size else nn.Parameter(torch.empty(size, self.input_size))
        self.create_convolution([size], self.kernel_size, bias=True)
        self.weight_gates = nn.Parameter(torch.empty(heads, 4, width, width))
        self.weight_hh = nn.Parameter(torch.empty(heads, 4, width, width))
        self.bias = nn.Parameter(torch.empty(4, size))
        self.weight_norm = nn.Parameter(torch.empty(size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        fan_in_uniform_(self.weight_ih, self.weight_conv)
        if self.weight_conv is not None:
            uniform_(self.bias_conv, self.weight_conv.shape[1] ** -0.5)
        self.weight_gates.normal_(std=math.sqrt(0.4 / self.hidden_size))
        self.weight_hh.zero_()
        self.bias.zero_()
        width = self.hidden_size // self.heads
        place = torch.arange(width, device=self.bias.device) / max(width - 1, 1)
        self.bias[1].copy_((5 - 12 * place ** (0.3 + 1.3 * self.depth)).repeat(self.heads))
        self.weight_norm.zero_()

    def init_state(self, batch_size: int) -> State:
        zeros = self.zeros(batch_size, self.hidden_size)
        scale = zeros + lowest_scale(zeros.dtype)
        return self.State(zeros, zeros, zeros, scale, self.init_window(batch_size))

    def project(self, inputs: Tensor) -> Tensor:
        """Return x_t (…, N)."""
        return (inputs if self.weight_ih is None else F.linear(inputs, self.weight_ih)).to(self.bias.dtype)

    def gates(self, entered: Tensor, active: Tensor) -> Tensor:
        """Return W u + b and W x + b (…, 4N), for x and u (…, N)."""
        of_u = naive.block_products(active, self.weight_gates[:, :2])
        of_x = naive.block_products(entered, self.weight_gates[:, 2:])
        return torch.cat((of_u, of_x), dim=-1).to(self.bias.dtype) + self.bias.flatten()

    def finish(self, hidden: Tensor) -> Tensor:
        """Return the normalized outputs (…, N)."""
        if self.heads == 1:
            return F.layer_norm(hidden, (self.hidden_size,), 1 + self.weight_norm, eps=EPSILON)
        normal = F.layer_norm(hidden.unflatten(-1, (self.heads, -1)), (self.hidden_size // self.heads,), eps=EPSILON)
        return normal.flatten(-2) * (1 + self.weight_norm)

    def step(self, projected: Tensor, state: State, constants: object) -> tuple[Tensor, State]:
        (active,), state = self.convolve_step(projected, state)
        # not in half precision: gates are exponentials
        gates, weight, *before = self.to_state_dtype(self.gates(projected, active), self.weight_hh, *state[:4])
        final = [leaf.to(self.bias.dtype) for leaf in naive.step(gates, weight, naive.State(*before))]
        return self.finish(final[0]), self.State._make((*final, state.window))

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        entered = self.project(inputs)
        (active,), state = self.convolve(entered, state, lengths, starts)
        parts = self.to_state_dtype(self.gates(entered, active), self.weight_hh, *state[:4])
        found = slstm(*parts, lengths=lengths, starts=starts)
        outputs, *final = [leaf.to(self.bias.dtype) for leaf in found]
        return zero_beyond(self.finish(outputs), lengths), self.State._make((*final, state.window))
