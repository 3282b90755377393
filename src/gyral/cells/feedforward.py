"""Feedforward network as the controller of a cell with an external memory."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DeclaredCell, DropoutMasks
from gyral.core.options import OneOf

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class Affine(nn.Module):
    """W x + b with the parameters of `torch.nn.Linear`, uniform in ±1/√X, which kernels read in place of a call.

    It is not a subclass of `torch.nn.Linear`: tools for adapters and quantization replace those, which would have no
    effect here, or give the kernels weights that they cannot read.

    Args:
        input_size, output_size: The columns X and the rows of W.
    """

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(output_size, input_size))
        self.bias = nn.Parameter(torch.empty(output_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the parameters as `torch.nn.Linear` does."""
        nn.Linear.reset_parameters(self)  # type: ignore[arg-type]

    def forward(self, inputs: Tensor) -> Tensor:
        """Return W x + b."""
        return F.linear(inputs, self.weight, self.bias)


class Feedforward(DeclaredCell):
    """One layer h_t = f(W x_t + b) without a state, as a controller: its memory is the external one.

    A cell with a memory passes what it read as part of x_t (Graves et al. 2014, section 3.4).

    Parameters: `linear`, W (N, X) and b (N,), uniform in ±1/√X.

    Args:
        activation: The function f, "tanh" or "relu".
    """

    class State(NamedTuple):
        """Nothing."""

    activation: Annotated[str, OneOf(ACTIVATIONS)] = "tanh"

    def __post_init__(self) -> None:
        self.linear = Affine(self.input_size, self.hidden_size)

    def init_state(self, batch_size: int) -> State:
        return self.State()

    def project(self, inputs: Tensor) -> Tensor:
        return ACTIVATIONS[self.activation](self.linear(inputs))

    def step(self, projected: Tensor, state: State, constants: DropoutMasks) -> tuple[Tensor, State]:
        return projected, state
