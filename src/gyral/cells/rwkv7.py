"""RWKV-7: a memory matrix with a decay for each channel, which erases what a key read before the decay."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.heads import heads_of_two, share
from gyral.cells.initialization import fan_in_uniform_, orthogonal_, uniform_
from gyral.cells.linear_attention import LinearAttentionCell, Operands, linear
from gyral.core.errors import OptionError
from gyral.core.options import NonNegativeInt, PositiveInt, derived
from gyral.ops.convolution import window
from gyral.ops.rwkv7 import rwkv7
from gyral.ops.rwkv7.naive import read, to_delta, written_keys
from gyral.ops.token_shift import mixed, token_shift

SLOPES = (0.2, 0.9, 0.7, 0.7, 0.9, 0.2)  # of the initial mixes of r, w, k, v, a and g


class Projected(NamedTuple):
    """x_t (…, H V)."""

    values: Tensor


class Mixed(NamedTuple):
    """Projections of x_t and x_{t−1}: the arguments of `gyral.ops.rwkv7.rwkv7`, each (…, H V) in `state_dtype`."""

    r: Tensor
    w: Tensor
    k: Tensor
    v: Tensor
    a: Tensor
    gate: Tensor


class RWKV7Cell(LinearAttentionCell):
    """RWKV-7, without the matrix after the recurrence.

    RWKV-7 (Peng et al., "RWKV-7 'Goose' with expressive dynamic state evolution", 2025, section 4).

        x^c_t = x_t + μ_c ⊙ (x_{t−1} − x_t)                       c = r, w, k, v, a, g; x_0 = 0
        r_t = W_r x^r_t,  v_t = W_v x^v_t,  k_t = W_k x^k_t,  g_t = G_2 σ(G_1 x^g_t)
        γ_t = −e^{−½} σ(w_0 + W_2 tanh(W_1 x^w_t)),  a_t = σ(a_0 + A_2 A_1 x^a_t)
        κ_t = (k_t ⊙ k_k) / ‖k_t ⊙ k_k‖,  k_t ← k_t ⊙ (1 + (a_t − 1) ⊙ k_a)
        S_t = e^{γ_t} ⊙ S_{t−1} − (a_t ⊙ κ_t) (S_{t−1}ᵀ κ_t)ᵀ + k_t v_tᵀ      for each head
        y_t = (LN(S_tᵀ r_t) + (Σ r_t ⊙ k_t ⊙ r_k) v_t) ⊙ g_t

    κ reads the memory before the decay. LN is over the V numbers of a head, with gain and bias of the whole width and
    ε = 64 · 10⁻⁵. K = V. The published model mixes the values of the first layer into those of the others, which needs
    more than one layer and is left out. x_t is the input, or W_ih times the input if its size is not H V. See
    `gyral.cells.linear_attention.MatrixMemoryCell` for sizes.

    Parameters and initial values, with W = H V, ℓ = layer / (layers − 1), n the place of a channel, l = n / (W − 1) − ½
    and z = j |j| for the place j ∈ [−1, 1] in its head: `weight_ih` (W, X), uniform in ±1/√X, or none; `mix` μ (6, W),
    1 − (n / W)^{p (1 − layer / layers)} with p = 0.2, 0.9, 0.7, 0.7, 0.9, 0.2; `weight_r`, `weight_v` and `weight_k`
    (W, W), uniform in ±0.5/√W, of k ±0.05/√W;
    `weight_w1`, `weight_a1` and `weight_g1` (rank, W), zero; `weight_w2`, `weight_a2` and `weight_g2` (W, rank),
    orthogonal times 0.1; `bias_w` w_0 (W,), −5.5 + 6 (n / (W − 1))^{1 + ℓ^0.3} + 2.5 z; `bias_a` a_0 (W,),
    −0.19 + 0.3 z + 0.4 l; `k_k` (W,), 0.71 − 0.1 l; `k_a` (W,), 1.02; `r_k` (H, V), −0.04; `weight_norm` (W,),
    ((layer + 1) / layers)^0.7; `bias_norm` (W,), zero.

    State:
        A NamedTuple (memory, window): the memory matrices (B, H, V, V), and the last input (B, 1, W).

    Args:
        hidden_size: N ≥ 2.
        heads: H, below N; ⌈N / 64⌉ if None.
        decay_rank, rate_rank: Ranks of W_2 W_1 and A_2 A_1; 2.5 √N if None, rounded to a multiple of 32 and ≥ 32.
        gate_rank: Rank of G_2 G_1; 5 √N if None, rounded in the same way.
        layer: The place of the layer in the model, from 0, which the initial values depend on.
        layers: The number of layers in the model; layer + 1 if None.

    Example:
        >>> layer = RWKV7(16, 64)
    """

    head_size = 64
    no_decay_parameters = ("bias_w",)
    vector_parameters = ("mix", "r_k")

    decay_rank: PositiveInt = derived(default=None)
    rate_rank: PositiveInt = derived(default=None)
    gate_rank: PositiveInt = derived(default=None)
    layer: NonNegativeInt = 0
    layers: PositiveInt = derived(default=None)

    def check(self) -> None:
        heads_of_two(self.heads or share(self.hidden_size, self.head_size), self.hidden_size, 1)
        if self.layers is not None and self.layer >= self.layers:
            raise OptionError("layer", self.layer, f"must be below layers, {self.layers}")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.layers = self.layers or self.layer + 1
        published = self.hidden_size**0.5 / 32
        self.decay_rank = self.decay_rank or max(32, round(2.5 * published) * 32)
        self.rate_rank = self.rate_rank or max(32, round(2.5 * published) * 32)
        self.gate_rank = self.gate_rank or max(32, round(5 * published) * 32)
        width = self.width
        self.create_convolution([width], None)
        self.kernel_size = 2  # a window with x_{t−1} alone
        self.weight_ih = None if self.input_size == width else nn.Parameter(torch.empty(width, self.input_size))
        self.mix = nn.Parameter(torch.empty(6, width))
        self.weight_r, self.weight_k, self.weight_v = (nn.Parameter(torch.empty(width, width)) for _ in "rkv")
        self.weight_w1, self.weight_w2 = self._low_rank(self.decay_rank)
        self.weight_a1, self.weight_a2 = self._low_rank(self.rate_rank)
        self.weight_g1, self.weight_g2 = self._low_rank(self.gate_rank)
        self.bias_w, self.bias_a, self.k_k, self.k_a = (nn.Parameter(torch.empty(width)) for _ in range(4))
        self.weight_norm, self.bias_norm = (nn.Parameter(torch.empty(width)) for _ in range(2))
        self.r_k = nn.Parameter(torch.empty(self.heads, self.value_size))
        self.reset_parameters()

    def _low_rank(self, rank: int) -> tuple[nn.Parameter, nn.Parameter]:
        """Return two parameters whose product has a rank."""
        return nn.Parameter(torch.empty(rank, self.width)), nn.Parameter(torch.empty(self.width, rank))

    @torch.no_grad()
    def reset_parameters(self) -> None:
        deep, width = self.layer / max(1, self.layers - 1), self.width
        options: dict[str, Any] = {"device": self.r_k.device, "dtype": self.state_dtype}
        fan_in_uniform_(self.weight_ih)
        place = torch.arange(width, **options) / width
        for mix, slope in zip(self.mix, SLOPES, strict=True):
            mix.copy_(1 - place ** (slope * (1 - self.layer / self.layers)))
        for weight, scale in ((self.weight_r, 0.5), (self.weight_k, 0.05), (self.weight_v, 0.5)):
            uniform_(weight, scale * width**-0.5)
        for name in "wag":
            getattr(self, f"weight_{name}1").zero_()
            orthogonal_(getattr(self, f"weight_{name}2")).mul_(0.1)
        line = torch.arange(width, **options) / max(1, width - 1)
        in_head = torch.arange(width, **options) % self.value_size
        zigzag = 2 * in_head / max(1, self.value_size - 1) - 1
        zigzag = zigzag * zigzag.abs()
        self.bias_w.copy_(-5.5 + 6 * line ** (1 + deep**0.3) + 2.5 * zigzag)
        self.bias_a.copy_(-0.19 + 0.3 * zigzag + 0.4 * (line - 0.5))
        self.k_k.copy_(0.71 - 0.1 * (line - 0.5))
        self.k_a.fill_(1.02)
        self.r_k.fill_(-0.04)
        self.weight_norm.fill_(((self.layer + 1) / self.layers) ** 0.7)
        self.bias_norm.zero_()

    def project(self, inputs: Tensor) -> Projected:
        return Projected(inputs.to(self.mix.dtype) if self.weight_ih is None else linear(inputs, self.weight_ih))

    def convolve_step(self, values: Tensor, state: Any) -> tuple[Mixed, Any]:
        mixes = mixed(values, self.mix, state.window[:, 0]).unbind(0)
        return self.projected(*mixes), state._replace(window=values.unsqueeze(1))

    def convolve(self, values: Tensor, state: Any, lengths: Tensor | None, starts: Tensor | None) -> tuple[Mixed, Any]:
        mixes = token_shift(values, self.mix, state.window[:, 0], starts=starts)  # the recurrence knows the lengths
        return self.projected(*mixes), state._replace(window=window(values, state.window, lengths, starts))

    def projected(self, r: Tensor, w: Tensor, k: Tensor, v: Tensor, a: Tensor, g: Tensor) -> Mixed:
        """Return the products of the mixes of x_t and x_{t−1} (…, H V)."""
        found = Mixed(
            r=linear(r, self.weight_r),
            w=self.precise_linear(torch.tanh(self.precise_linear(w, self.weight_w1)), self.weight_w2, self.bias_w),
            k=linear(k, self.weight_k),
            v=linear(v, self.weight_v),
            a=linear(linear(a, self.weight_a1), self.weight_a2, self.bias_a),
            gate=linear(torch.sigmoid(linear(g, self.weight_g1)), self.weight_g2),
        )
        return Mixed(*self.to_state_dtype(*found))

    def operands(self, projected: Projected, values: Mixed) -> Operands:
        r, w, k, v, a, _ = values
        k_k, k_a = self.to_state_dtype(self.k_k, self.k_a)
        rate = torch.sigmoid(a)
        return Operands(*to_delta(r, w, k, v, rate, k_k, written_keys(k, rate, k_a), self.r_k.shape))

    def read(self, outputs: Tensor, projected: Projected, values: Mixed) -> Tensor:
        parameters = self.k_a, self.r_k, self.weight_norm, self.bias_norm
        outputs, k_a, *others = self.to_state_dtype(outputs, *parameters)
        written = written_keys(values.k, torch.sigmoid(values.a), k_a)
        return self.to_parameter_dtype(read(outputs, values.r, written, values.v, values.gate, *others))

    def fused(self, inputs: Tensor, state: Any, lengths: Tensor | None, starts: Tensor | None) -> tuple[Tensor, Any]:
        values, state = self.convolve(self.project(inputs).values, state, lengths, starts)
        parameters = self.k_k, self.k_a, self.r_k, self.weight_norm, self.bias_norm, state.memory
        outputs, memory = rwkv7(*values, *self.to_state_dtype(*parameters), lengths, starts)
        return self.to_parameter_dtype(outputs)[..., : self.hidden_size], state._replace(memory=memory)
