"""HGRN2: gated linear attention whose keys are what the gates forget."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.linear_attention import LinearAttentionCell, Operands, Readout, linear
from gyral.core.options import PositiveInt, Probability, derived


class Projected(NamedTuple):
    """[q_t; v_t] (…, C), and a_t (…, H K)."""

    values: Tensor
    forget: Tensor


class HGRN2Cell(LinearAttentionCell):
    """HGRN2, without the matrix after the recurrence.

    HGRN2 (Qin, Yang, Sun, Shen, Li, Sun and Zhong, "HGRN2: gated linear RNNs with state expansion", COLM 2024,
    section 3).

        [q_t; a_t; v_t] = W_ih x_t
        f_t = ℓ + (1 − ℓ) σ(a_t)
        S_t = f_t ⊙ S_{t−1} + (1 − f_t) v_tᵀ                      for each head, f_t scales the K rows of S
        y_t = RMS([S_tᵀ SiLU(q_t) / √K of all heads])

    RMS is over the whole width, with ε = 10⁻⁵. The lower bound ℓ of the forget gates is zero in the first layer of the
    published models and grows with depth. There it is learned for all layers at once: a softmax over the layers, summed
    up to a layer, minus its first entry. See `gyral.cells.linear_attention.MatrixMemoryCell` for sizes.

    Parameters and initial values: `weight_ih` (2HK + HV, X), rows [q; a; v], uniform in ±1/√X; `weight_norm` (H V,),
    one.

    State:
        One tensor (B, H, K, V), the memory matrices.

    Args:
        heads: H; ⌈N / 128⌉ if None.
        key_size: K; V if None.
        lower_bound: ℓ, in [0, 1).

    Example:
        >>> layer = HGRN2(16, 64, heads=2)
    """

    head_size = 128

    key_size: PositiveInt = derived(default=None)
    lower_bound: Probability = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        keys = self.heads * self.key_size
        self.create_convolution([keys, self.width], None)
        self.weight_ih = nn.Parameter(torch.empty(keys + self.channels, self.input_size))
        self.weight_norm = nn.Parameter(torch.empty(self.width))
        self.reset_parameters()

    def project(self, inputs: Tensor) -> Projected:
        q, forget, v = self.weight_ih.split([self.parts[0], self.parts[0], self.width])
        return Projected(torch.cat((linear(inputs, q), linear(inputs, v)), dim=-1), self.precise_linear(inputs, forget))

    def operands(self, projected: Projected, values: tuple[Tensor, ...]) -> Operands:
        (q, v), forget = values, projected.forget
        bound: float | Tensor = self.lower_bound
        if not isinstance(bound, Tensor):
            bound = forget.new_full((), bound)  # not from a tensor of the CPU, which no CUDA graph could copy
        # 1 − f and log f without rounding f, which may be close to 0 or 1
        k = (1 - bound) * torch.sigmoid(-forget)
        decay = torch.logaddexp(bound.log(), (-bound).log1p() + F.logsigmoid(forget))
        q = F.silu(q)
        q, k, decay = (part.unflatten(-1, (self.heads, self.key_size)) for part in (q, k, decay))
        v = v.unflatten(-1, (self.heads, self.value_size))
        return Operands(q, k.unsqueeze(-3), v.unsqueeze(-3), decay)

    def readout(self, projected: Projected, values: tuple[Tensor, ...]) -> Readout:
        # of queries that are not divided by √K, for which ε has to be K times as large
        return Readout(self.weight_norm, size=self.width, epsilon=1e-5 * self.key_size)
