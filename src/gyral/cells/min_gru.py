"""minGRU: a gated recurrent unit whose gate does not read the state."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.diagonal import DiagonalCell
from gyral.cells.initialization import fan_in_uniform_
from gyral.ops.min_gated import coefficients, min_gated


class MinGRUCell(DiagonalCell):
    """minGRU.

    minGRU (Feng, Tung, Ahmed, Bengio and Hajimirsadeghi, "Were RNNs all we needed?", 2024, appendix B).

        c_t = W_c x_t,  z_t = σ(W_z x_t)
        h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ g(c_t)                  g(c) = c + ½ if c ≥ 0, else σ(c)

    There is no recurrent weight: all steps run in parallel. The output is h_t. g is positive, which the authors' scan
    in the logarithmic domain needs; this one does not, and allows any initial state.

    Parameter: `weight_ih` (2N, X), rows [W_c; W_z], uniform in ±1/√X as torch.nn.Linear. There is no bias.

    Example:
        >>> layer = MinGRU(16, 64)
    """

    fused_operator = min_gated
    parts = 2  # W_c and W_z

    def __post_init__(self) -> None:
        self.state_size = self.hidden_size
        self.weight_ih = nn.Parameter(torch.empty(self.parts * self.hidden_size, self.input_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fan_in_uniform_(self.weight_ih)

    def project(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight_ih).to(self.state_dtype)

    def coefficients(self, projected: Tensor, constants: object) -> tuple[Tensor, Tensor]:
        return coefficients(projected, self.hidden_size)

    def scan(
        self, projected: Tensor, constants: object, h0: Tensor, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        hidden, final = min_gated(projected, h0, lengths=lengths, starts=starts)
        return self.read(hidden, projected, constants), final
