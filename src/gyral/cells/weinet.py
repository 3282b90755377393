"""WeiNet, a recurrent network whose recurrent weights are a memory."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import AssociativeState, DropoutMasks
from gyral.cells.fast_weights import MemoryNetworkCell
from gyral.core.checks import check_integer
from gyral.core.options import PositiveFloat


class WeiNetCell(MemoryNetworkCell):
    """Recurrent network whose recurrent weights are a memory.

    WeiNet: learned gates update the recurrent weights from the current input (after Zhang and Zhou 2017).

    The papers that cite WeiNet give no equations. These equations are ours; they follow the description and the
    parameter count, about 22 thousand at N = 50, in the recall table of Dangovski et al. (TACL 2019):

        f, f', i, i' = σ(W x_t + U h_{t−1} + b)             gates of rows and columns, each (N,)
        v = W_v x_t + b_v,   k = W_k x_t + b_k              value and key
        A_t = (f f'ᵀ) ⊙ A_{t−1} + (i ⊙ v)(i' ⊙ k)ᵀ          the memory, A_0 = 0
        h_t = tanh(LN(A_t h_{t−1} + C x_t + b_c))

    The state is (h, A) with A (B, N, N). A step costs O(N²) per sample and keeps A for the backward pass.

    Parameters: `weight_ih` (7N, X), rows [f; f'; i; i'; v; k; c], and `weight_hh` (4N, N), rows [f; f'; i; i'], each
    block of N rows Xavier-uniform; `bias` (7N,), 1 in the rows of f and f' and 0 in the others; `norm`, gain 1 and
    bias 0.

    Args:
        hidden_size: N ≥ 1, with `layer_norm` N ≥ 2: a single number is normalized to zero.
        layer_norm: Whether to apply LN (Ba et al. 2016, with gain and bias).
        layer_norm_eps: Number > 0 that the layer normalization adds to the variance, torch's default 1e-5.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`; the dropout acts on h in the gates.

    Example:
        >>> layer = WeiNet(16, 64)
    """

    kernel_rows = ("f", "f'", "i", "i'", "v", "k", "c")

    class Projected(NamedTuple):
        """Inputs of the gates (…, B, 4N), value, key and candidate (…, B, N)."""

        gates: Tensor
        value: Tensor
        key: Tensor
        candidate: Tensor

    layer_norm: bool = True
    layer_norm_eps: PositiveFloat = 1e-5

    def check(self) -> None:
        check_integer("hidden_size", self.hidden_size, minimum=2 if self.layer_norm else 1)

    def __post_init__(self) -> None:
        size = self.hidden_size
        self.weight_ih = nn.Parameter(torch.empty(7 * size, self.input_size))
        self.weight_hh = nn.Parameter(torch.empty(4 * size, size))
        self.bias = nn.Parameter(torch.empty(7 * size))
        self.norm = nn.LayerNorm(size, self.layer_norm_eps) if self.layer_norm else nn.Identity()
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for weight in (self.weight_ih, self.weight_hh):
            for kernel in weight.split(self.hidden_size):
                nn.init.xavier_uniform_(kernel)
        self.bias.zero_()
        self.bias[: 2 * self.hidden_size] = 1.0
        if isinstance(self.norm, nn.LayerNorm):
            self.norm.reset_parameters()

    def project(self, inputs: Tensor) -> Projected:
        size = self.hidden_size
        return self.Projected(*F.linear(inputs, self.weight_ih, self.bias).split((4 * size, size, size, size), dim=-1))

    def step(
        self, projected: Projected, state: AssociativeState, constants: DropoutMasks
    ) -> tuple[Tensor, AssociativeState]:
        old = state.hidden
        gates = torch.addmm(projected.gates, self.apply_recurrent_dropout(old, constants), self.weight_hh.T).sigmoid()
        forget_row, forget_column, write_row, write_column = gates.chunk(4, dim=-1)
        memory = state.memory * (forget_row.unsqueeze(-1) * forget_column.unsqueeze(-2))
        value, key = write_row * projected.value, write_column * projected.key
        memory = torch.baddbmm(memory, value.unsqueeze(-1), key.unsqueeze(-2))
        read = torch.bmm(memory, old.unsqueeze(-1)).squeeze(-1)
        hidden = torch.tanh(self.norm(projected.candidate + read))
        hidden = self.apply_zoneout(hidden, old, constants)
        return hidden, AssociativeState(hidden, memory)

    def kernel_options(self) -> dict[str, Any]:
        return {"kind": "weinet"}
