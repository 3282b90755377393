"""Feedforward network as the controller of a cell with an external memory."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, RecurrentCell
from gyral.core.checks import check_choice

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class Feedforward(RecurrentCell):
    """One layer h_t = f(W x_t + b) without a state, as a controller: its memory is the external one.

    A cell with a memory passes what it read as part of x_t (Graves et al. 2014, section 3.4).

    Parameters: `linear`, W (N, X) and b (N,), uniform in ±1/√X.

    Args:
        activation: The function f, "tanh" or "relu".
    """

    class State(NamedTuple):
        """Nothing."""

    def __init__(self, input_size: int, hidden_size: int, *, activation: str = "tanh") -> None:
        super().__init__(input_size, hidden_size)
        self.activation = check_choice("activation", activation, tuple(ACTIVATIONS))
        self.linear = nn.Linear(input_size, hidden_size)

    def init_state(self, batch_size: int) -> State:
        return self.State()

    def project(self, inputs: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.linear(inputs))

    def step(self, projected: Tensor, state: State, constants: DropoutMasks) -> tuple[Tensor, State]:
        return projected, state
