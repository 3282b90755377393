"""GLA: linear attention whose memory forgets by a gate for each key channel."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.linear_attention import NormalizedMemoryCell, Operands, Readout, linear
from gyral.core.options import PositiveInt, Range, derived


class Projected(NamedTuple):
    """[q_t; k_t; v_t] (…, C), γ_t (…, H, K), and the output gate z_t (…, H V) before SiLU or None."""

    values: Tensor
    decay: Tensor
    gate: Tensor | None


class GLACell(NormalizedMemoryCell):
    """Gated linear attention, without the matrix after the recurrence.

    Gated linear attention (Yang, Wang, Shen, Panda and Kim, "Gated linear attention transformers with
    hardware-efficient training", ICML 2024, section 4).

        [q_t; k_t; v_t; z_t; a_t] = W_ih x_t
        γ_t = log σ(W_γ a_t + b_γ) / τ
        S_t = e^{γ_t} ⊙ S_{t−1} + k_t v_tᵀ                        for each head, e^{γ_t} scales the K rows of S
        y_t = RMS(S_tᵀ q_t / √K) ⊙ SiLU(z_t)

    RMS is over the V numbers of a head, with a gain that the heads share and ε = 10⁻⁵. With a convolution, q, k and v
    pass it, then SiLU. See `gyral.cells.linear_attention.MatrixMemoryCell` for sizes.

    Parameters and initial values: `weight_ih` (2HK + 2HV + R, X), rows [q; k; v; z; a], `weight_decay` W_γ (HK, R), and
    `weight_conv` (2HK + HV, kernel_size), uniform in ±1/√columns; `bias_decay` b_γ (HK,), zero; `weight_norm`
    (V,), one.

    Args:
        heads: H.
        key_size: K; ⌈V / 2⌉ if None.
        gate_rank: R, the rank of the decay.
        gate_normalizer: τ > 0.
        gate: Whether the output has the gate z.
        kernel_size: ≥ 2, the number of steps in the window of the convolution; None: without a convolution.

    Example:
        >>> layer = GLA(16, 64, heads=2)
    """

    no_decay_parameters = ("bias_decay",)
    values_per_key = 2

    heads: PositiveInt = 4
    key_size: PositiveInt = derived(default=None)
    gate_rank: PositiveInt = 16
    gate_normalizer: Annotated[float, Range(above=0)] = 16.0
    gate: bool = True
    kernel_size: Annotated[int, Range(2)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        keys, values = self.heads * self.key_size, self.width
        self.sizes = 2 * keys + values, values if self.gate else 0, self.gate_rank
        self.weight_ih = nn.Parameter(torch.empty(sum(self.sizes), self.input_size))
        self.weight_decay = nn.Parameter(torch.empty(keys, self.gate_rank))
        self.bias_decay = nn.Parameter(torch.empty(keys))
        self.weight_norm = nn.Parameter(torch.empty(self.value_size))
        self.create_convolution([keys, keys, values], self.kernel_size)
        self.reset_parameters()

    def project(self, inputs: Tensor) -> Projected:
        *others, of_decay = self.weight_ih.split(self.sizes)
        values, gate = (linear(inputs, weight) for weight in others)
        logits = self.precise_linear(self.precise_linear(inputs, of_decay), self.weight_decay, self.bias_decay)
        decay = F.logsigmoid(logits) / self.gate_normalizer
        return Projected(values, decay.unflatten(-1, (self.heads, self.key_size)), gate if gate.shape[-1] else None)

    def operands(self, projected: Projected, values: tuple[Tensor, ...]) -> Operands:
        q, k, v = values
        q, k = (part.unflatten(-1, (self.heads, self.key_size)) for part in (q, k))
        v = v.unflatten(-1, (self.heads, self.value_size))
        return Operands(q, k.unsqueeze(-3), v.unsqueeze(-3), projected.decay)

    def readout(self, projected: Projected, values: tuple[Tensor, ...]) -> Readout:
        # of queries that are not divided by √K, for which ε has to be K times as large
        return Readout(self.weight_norm, projected.gate, size=self.value_size, epsilon=1e-5 * self.key_size)
