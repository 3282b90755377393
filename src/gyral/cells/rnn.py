"""The plain recurrent network."""

from torch import Tensor, nn

from gyral.cells.base import DropoutMasks, HiddenState, LayerCell
from gyral.core.checks import check_boolean, check_choice, check_integer


class RNNCell(LayerCell):
    """Elman network (Elman 1990): h_t = f(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh), as `torch.nn.RNN` has it.

    Initialization is torch's: every weight and bias uniform in ±1/√N.

    With layer normalization what f takes is normalized.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        nonlinearity: f, "tanh" or "relu".
        bias: whether there are biases.
        layer_norm: normalize (Ba et al. 2016).
        zoneout, recurrent_dropout: of `gyral.cells.base.RecurrentCell`.

    Raises:
        OptionError: a size below 1, an option out of its bounds or of another type, an unknown nonlinearity.
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
        hidden = activation(self.norm(projected + self.recur(state.hidden, constants)))
        hidden = self.apply_zoneout(hidden, state.hidden, constants)
        return hidden, HiddenState(hidden)
