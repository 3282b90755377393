"""Gated recurrent unit."""

import torch
from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, HiddenState, LayerCell
from gyral.core.checks import check_boolean, check_integer


class GRUCell(LayerCell):
    """GRU (Cho et al. 2014) in the variant of cuDNN and `torch.nn.GRU`: the reset gate acts after the product.

    Gates in torch's order r, z, n: n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn)), h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}.
    Initialization is torch's: every weight and bias uniform in ±1/√N.

    With layer normalization r and z are normalized before their sigmoids and n before its tanh.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        bias: whether the gates have biases.
        layer_norm: normalize (Ba et al. 2016).
        zoneout, recurrent_dropout: of `gyral.cells.base.RecurrentCell`.

    Raises:
        OptionError: a size below 1, an option out of its bounds or of another type.
    """

    State = HiddenState

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        layer_norm: bool = False,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        check_integer("input_size", input_size)
        check_integer("hidden_size", hidden_size)
        super().__init__(
            nn.GRU(input_size, hidden_size, bias=check_boolean("bias", bias)),
            layer_norm=layer_norm,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
        )
        self.norm_gates = self.normalization(2)
        self.norm_candidate = self.normalization(1)

    def step(self, projected: Tensor, state: HiddenState, constants: DropoutMasks) -> tuple[Tensor, HiddenState]:
        size = self.hidden_size
        input_gates, input_candidate = projected.split((2 * size, size), dim=-1)
        hidden_gates, hidden_candidate = self.recur(state.hidden, constants).split((2 * size, size), dim=-1)
        reset, update = torch.sigmoid(self.norm_gates(input_gates + hidden_gates)).chunk(2, dim=-1)
        candidate = torch.tanh(self.norm_candidate(input_candidate + reset * hidden_candidate))
        hidden = candidate + update * (state.hidden - candidate)
        hidden = self.apply_zoneout(hidden, state.hidden, constants)
        return hidden, HiddenState(hidden)
