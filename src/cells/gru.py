"""Gated recurrent unit."""

import torch
from torch import Tensor, nn

from src.cells.base import HiddenState, LayerCell
from src.checks import check_boolean, check_integer


class GRUCell(LayerCell):
    """GRU (Cho et al. 2014) in the variant of cuDNN and `torch.nn.GRU`: the reset gate acts after the product.

    Gates in torch's order r, z, n: n = tanh(W_in x + b_in + r ⊙ (W_hn h + b_hn)), h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}.
    Initialization is torch's: every weight and bias uniform in ±1/√N.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        bias: whether the gates have biases.

    Raises:
        OptionError: a size below 1 or of another type.
    """

    State = HiddenState

    def __init__(self, input_size: int, hidden_size: int, *, bias: bool = True) -> None:
        check_integer("input_size", input_size)
        check_integer("hidden_size", hidden_size)
        super().__init__(nn.GRU(input_size, hidden_size, bias=check_boolean("bias", bias)))

    def step(self, projected: Tensor, state: HiddenState) -> tuple[Tensor, HiddenState]:
        input_reset, input_update, input_candidate = projected.chunk(3, dim=-1)
        hidden_reset, hidden_update, hidden_candidate = self.recur(state.hidden).chunk(3, dim=-1)
        reset = torch.sigmoid(input_reset + hidden_reset)
        update = torch.sigmoid(input_update + hidden_update)
        candidate = torch.tanh(input_candidate + reset * hidden_candidate)
        hidden = candidate + update * (state.hidden - candidate)
        return hidden, HiddenState(hidden)
