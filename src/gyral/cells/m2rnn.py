"""M²RNN: a memory matrix with a nonlinear recurrence."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.delta_rule import draw_rates_
from gyral.cells.heads import share
from gyral.cells.initialization import draw_step_sizes_, fan_in_uniform_
from gyral.cells.short_convolution import ConvolvedCell
from gyral.core.options import PositiveFloat, PositiveInt, Range, derived
from gyral.ops.autograd import outside_autocast
from gyral.ops.gated_norm import gated_norm
from gyral.ops.m2rnn import LARGEST_VALUE, m2rnn, naive

EPSILON = 1e-5  # of the normalization


class Projected(NamedTuple):
    """The inputs of the convolution (…, C), the logits of f (…, H) and of the gate (…, H V)."""

    values: Tensor
    forget: Tensor
    gate: Tensor


class M2RNNCell(ConvolvedCell):
    """M²RNN: a memory matrix with a nonlinear recurrence, without the matrix after it.

    M²RNN (2026, arXiv 2603.14360), a matrix-to-matrix recurrence that is not linear.

        [q; k; v; δ; g] = W_ih x,  [q; k; v] ← SiLU(conv([q; k; v]))    depthwise, causal; zeros before the first step
        f = exp(−exp(A_log) softplus(δ + b_Δ))                           one number for each head
        S_t = f S_{t−1} + (1 − f) tanh(S_{t−1} W + k vᵀ)                  for each of H heads, S (K, V)
        y = RMSNorm((S_tᵀ q + D ⊙ v) ⊙ SiLU(g))                          over the numbers of all heads

    With `clip`, the gradient of S_t is cut to [−clip, clip] at each step. The output is y; the matrix after it in the
    published layer belongs to the block around the cell. The published models have V = 16 and K = 64.

    Parameters and initial values: `weight_ih` (rows, X), rows [q; k; v; δ; g], uniform in ±1/√X; `weight_conv`
    (C, kernel_size), uniform in ±1/√kernel_size; `weight_hh` W (H, V, V), the identity; `A_log` (H,), the logarithm of
    numbers that are uniform in [0, 16]; `bias_dt` b_Δ (H,), the inverse of softplus at step sizes whose logarithm is
    uniform in [log 0.001, log 0.1]; `D` (H, V) and `weight_norm` (H V,), one.

    Args:
        hidden_size: N ≥ 1, the width of the outputs; rounded up to a multiple of H.
        heads: H; each has V = ⌈N / H⌉ columns.
        key_size: K, the number of rows of S; 4 V if None.
        shared_keys: Whether all heads have the same q and k.
        kernel_size: Number of steps, at least 2, in the window of the convolution. None: there is no convolution.
        clip: Number > 0, the bound of the gradient of S_t, 1 in the authors' models; None: there is no bound, and the
            gradient is the derivative.

    Example:
        >>> layer = M2RNN(16, 64)
    """

    fused_operator = m2rnn
    no_decay_parameters = ("A_log", "bias_dt")
    vector_parameters = ("D",)

    class State(NamedTuple):
        """S (B, H, K, V), and the last inputs of the convolution (B, kernel_size − 1, C), the latest last."""

        memory: Tensor
        window: Tensor

    heads: PositiveInt = 4
    key_size: PositiveInt = derived(default=None)
    shared_keys: bool = True
    kernel_size: Annotated[int, Range(2)] | None = 4
    clip: PositiveFloat | None = None

    def __post_init__(self) -> None:
        heads, width = self.heads, share(self.hidden_size, self.heads)
        self.hidden_size = self.units = self.output_size = heads * width
        self.value_size = width
        self.key_size = self.key_size or 4 * width
        self.key_heads = 1 if self.shared_keys else heads
        keys = self.key_heads * self.key_size
        parts = keys, keys, self.output_size
        self.weight_ih = nn.Parameter(torch.empty(sum(parts) + heads + self.output_size, self.input_size))
        self.create_convolution(parts, self.kernel_size)
        self.weight_hh = nn.Parameter(torch.empty(heads, width, width))
        self.A_log = nn.Parameter(torch.empty(heads))
        self.bias_dt = nn.Parameter(torch.empty(heads))
        self.D = nn.Parameter(torch.empty(heads, width))
        self.weight_norm = nn.Parameter(torch.empty(self.output_size))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        fan_in_uniform_(self.weight_ih, self.weight_conv)
        self.weight_hh.copy_(torch.eye(self.value_size, device=self.D.device))
        draw_rates_(self.A_log, 0.0)
        draw_step_sizes_(self.bias_dt)
        self.D.fill_(1.0)
        self.weight_norm.fill_(1.0)

    def init_state(self, batch_size: int) -> State:
        memory = self.zeros(batch_size, self.heads, self.key_size, self.value_size, dtype=self.state_dtype)
        return self.State(memory, self.init_window(batch_size))

    def kernels_unsupported_reason(self) -> str | None:
        if self.D.device.type != "cpu" and self.value_size > LARGEST_VALUE:
            return f"the kernels support up to {LARGEST_VALUE} columns of a memory, not {self.value_size}"
        return super().kernels_unsupported_reason()

    def project(self, inputs: Tensor) -> Projected:
        of_values, of_forget, of_gate = self.weight_ih.split([self.channels, self.heads, self.output_size])
        values, gate = (F.linear(inputs, weight).to(self.D.dtype) for weight in (of_values, of_gate))
        return Projected(values, self.precise_linear(inputs, of_forget), gate)

    def activate_without_convolution(self, values: Tensor) -> Tensor:
        return F.silu(values)

    def heads_of(self, parts: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Return q and k (…, G, K), and v (…, H, V)."""
        q, k, v = self.to_state_dtype(*parts)
        q, k = (part.unflatten(-1, (self.key_heads, self.key_size)) for part in (q, k))
        return q, k, v.unflatten(-1, (self.heads, self.value_size))

    def forget(self, logits: Tensor) -> Tensor:
        """Return f (…, H) for δ."""
        a_log, bias = self.to_state_dtype(self.A_log, self.bias_dt)
        return torch.exp(-torch.exp(a_log) * F.softplus(logits + bias))

    def finish(self, read: Tensor, v: Tensor, gate: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return the outputs (…, H V) for what is read and v (…, H, V), of one step or of all."""
        skip, gain, gate = self.to_state_dtype(self.D, self.weight_norm, gate)
        run = gated_norm.naive if read.dim() == 3 else gated_norm
        values = torch.addcmul(read, v, skip)
        normed = run(values, gain, gate, lengths=lengths, size=self.output_size, gate_first=True, epsilon=EPSILON)
        return normed.to(self.D.dtype)

    def step(self, projected: Projected, state: State, constants: object) -> tuple[Tensor, State]:
        parts, state = self.convolve_step(projected.values, state)
        q, k, v = self.heads_of(parts)
        forget = self.forget(projected.forget)
        with outside_autocast(v.device):
            weight, memory = self.to_state_dtype(self.weight_hh, state.memory)
            read, memory = naive.step(q, k, v, forget, weight, memory, self.clip)
        output = self.finish(read, v, projected.gate)
        return output, state._replace(memory=memory)

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        projected = self.project(inputs)
        parts, state = self.convolve(projected.values, state, lengths, starts)
        q, k, v = self.heads_of(parts)
        forget = self.forget(projected.forget)
        weight, s0 = self.to_state_dtype(self.weight_hh, state.memory)
        read, memory = m2rnn(q, k, v, forget, weight, s0, clip=self.clip, lengths=lengths, starts=starts)
        outputs = self.finish(read, v, projected.gate, lengths)
        return outputs, state._replace(memory=memory)
