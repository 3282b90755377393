"""HGRN2: gated linear attention whose keys are what the gates forget."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.linear_attention import NormalizedMemoryCell, Operands, Readout, linear
from gyral.core.options import PositiveInt, Probability, derived


class Projected(NamedTuple):
    """v_t (…, H V), q_t and a_t (…, H K)."""

    values: Tensor
    query: Tensor
    forget: Tensor


class HGRN2Cell(NormalizedMemoryCell):
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
        self.create_convolution([self.width], None)
        self.weight_ih = nn.Parameter(torch.empty(2 * keys + self.width, self.input_size))
        self.weight_norm = nn.Parameter(torch.empty(self.width))
        self.reset_parameters()

    def project(self, inputs: Tensor) -> Projected:
        keys = self.heads * self.key_size
        q, forget, v = self.weight_ih.split([keys, keys, self.width])
        return Projected(linear(inputs, v), linear(inputs, q), self.precise_linear(inputs, forget))

    def operands(self, projected: Projected, values: tuple[Tensor, ...]) -> Operands:
        (v,), q, forget = values, F.silu(projected.query), projected.forget
        k, decay = self.gates(forget)
        q, k, decay = (part.unflatten(-1, (self.heads, self.key_size)) for part in (q, k, decay))
        v = v.unflatten(-1, (self.heads, self.value_size))
        return Operands(q, k.unsqueeze(-3), v.unsqueeze(-3), decay)

    def gates(self, forget: Tensor) -> tuple[Tensor, Tensor]:
        """Return 1 − f and log f for a, without rounding f, which may be close to 0 or 1."""
        bound: float | Tensor = self.lower_bound
        if not isinstance(bound, Tensor):
            if bound == 0:
                return torch.sigmoid(-forget), F.logsigmoid(forget)
            bound = forget.new_full((), bound)  # not from a tensor of the CPU, which no CUDA graph could copy
        k = (1 - bound) * torch.sigmoid(-forget)
        return k, torch.logaddexp(bound.log(), (-bound).log1p() + F.logsigmoid(forget))

    def readout(self, projected: Projected, values: tuple[Tensor, ...]) -> Readout:
        # of queries that are not divided by √K, for which ε has to be K times as large
        return Readout(self.weight_norm, size=self.width, epsilon=1e-5 * self.key_size)
