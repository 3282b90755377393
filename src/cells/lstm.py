"""Long short-term memory."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from src.cells.base import LayerCell
from src.checks import check_boolean, check_integer


class LSTMCell(LayerCell):
    """LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000), as `torch.nn.LSTM` has it.

    Gates in torch's order i, f, g, o, without peepholes:
    c_t = σ(f) ⊙ c_{t−1} + σ(i) ⊙ tanh(g), h_t = σ(o) ⊙ tanh(c_t).
    Initialization is torch's: every weight and bias uniform in ±1/√N, no extra forget bias.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        bias: whether the gates have biases.

    Raises:
        OptionError: a size below 1 or of another type.
    """

    class State(NamedTuple):
        """Hidden and cell vectors, both (B, N)."""

        hidden: Tensor
        cell: Tensor

    def __init__(self, input_size: int, hidden_size: int, *, bias: bool = True) -> None:
        check_integer("input_size", input_size)
        check_integer("hidden_size", hidden_size)
        super().__init__(nn.LSTM(input_size, hidden_size, bias=check_boolean("bias", bias)))

    def init_state(self, batch_size: int) -> State:
        return self.State(self.zeros(batch_size, self.hidden_size), self.zeros(batch_size, self.hidden_size))

    def step(self, projected: Tensor, state: State) -> tuple[Tensor, State]:
        write, forget, candidate, output = (projected + self.recur(state.hidden)).chunk(4, dim=-1)
        cell = forget.sigmoid() * state.cell + write.sigmoid() * candidate.tanh()
        hidden = output.sigmoid() * torch.tanh(cell)
        return hidden, self.State(hidden, cell)
