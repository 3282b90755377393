"""Elman network, the plain recurrent network (RNN)."""

from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, HiddenState
from gyral.cells.torch_layer import TorchLayerCell
from gyral.core.checks import check_boolean, check_choice, check_integer


class RNNCell(TorchLayerCell):
    """Elman network (Elman 1990): h_t = f(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh), the variant of `torch.nn.RNN`.

    Layer normalization acts on the argument of f.

    Parameters: see `gyral.cells.torch_layer.TorchLayerCell`; every weight and bias is uniform in ±1/√N.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        nonlinearity: The function f, "tanh" or "relu".
        bias: Whether there are biases.
        layer_norm: Whether to apply layer normalization (Ba et al. 2016), with gain 1 and bias 0 at the start.
        zoneout, recurrent_dropout: See `gyral.cells.base.RecurrentCell`.

    Raises:
        OptionError: A size is below 1, or an option is out of bounds or has another type.
    """

    State = HiddenState

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        nonlinearity: str = "tanh",
        bias: bool = True,
        layer_norm: bool = False,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        check_integer("input_size", input_size)
        check_integer("hidden_size", hidden_size)
        check_choice("nonlinearity", nonlinearity, ("tanh", "relu"))
        super().__init__(
            nn.RNN(input_size, hidden_size, nonlinearity=nonlinearity, bias=check_boolean("bias", bias)),
            layer_norm=layer_norm,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
        )
        self.norm = self.normalization(1)

    def step(self, projected: Tensor, state: HiddenState, constants: DropoutMasks) -> tuple[Tensor, HiddenState]:
        activation = Tensor.tanh if self.layer.nonlinearity == "tanh" else Tensor.relu
        hidden = activation(self.norm(projected + self.project_hidden(state.hidden, constants)))
        hidden = self.apply_zoneout(hidden, state.hidden, constants)
        return hidden, HiddenState(hidden)
