"""Elman network, the plain recurrent network (RNN)."""

from typing import Annotated, Any

from torch import Tensor

from gyral.cells.base import DropoutMasks, HiddenState
from gyral.cells.torch_layer import TorchLayerCell
from gyral.core.options import OneOf


class RNNCell(TorchLayerCell):
    """Elman network.

    Elman network (Elman 1990): h_t = f(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh), the variant of `torch.nn.RNN`.

    Layer normalization acts on the argument of f.

    Parameters: see `gyral.cells.torch_layer.TorchLayerCell`; every weight and bias is uniform in ±1/√N.

    Args:
        nonlinearity: The function f, "tanh" or "relu".
        bias: Whether there are biases.

    Example:
        >>> layer = RNN(16, 64, nonlinearity="relu")
    """

    kernel_rows = ("h",)

    State = HiddenState

    nonlinearity: Annotated[str, OneOf(("tanh", "relu"))] = "tanh"

    def __post_init__(self) -> None:
        self.mode = f"RNN_{self.nonlinearity.upper()}"
        super().__post_init__()

    def create_norms(self) -> None:
        self.norm = self.normalization(1)

    def step(self, projected: Tensor, state: HiddenState, constants: DropoutMasks) -> tuple[Tensor, HiddenState]:
        activation = Tensor.tanh if self.nonlinearity == "tanh" else Tensor.relu
        hidden = activation(self.norm(projected + self.project_hidden(state.hidden, constants)))
        hidden = self.apply_zoneout(hidden, state.hidden, constants)
        return hidden, HiddenState(hidden)

    def kernel_options(self, constants: DropoutMasks) -> dict[str, Any]:
        return {"kind": f"rnn_{self.nonlinearity}", **self.common_kernel_options(constants)}
