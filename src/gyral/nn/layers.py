"""Layers with the interface of `torch.nn.GRU`, one per cell: `RUM(input_size, hidden_size)`."""

from functools import partial
from typing import Any

from gyral.cells.base import RecurrentCell
from gyral.cells.eurnn import EURNNCell
from gyral.cells.fast_weights import FastWeightsCell
from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.rum import RUMCell
from gyral.cells.urnn import URNNCell
from gyral.cells.weinet import WeiNetCell
from gyral.nn.recurrent import Recurrent


class Layer(Recurrent):
    """Base class of the layers. A subclass sets `cell_class`.

    Args:
        input_size: X, the width of the inputs.
        hidden_size: N, the hidden size of each cell.
        num_layers, batch_first, dropout, bidirectional, backend: See `gyral.nn.recurrent.Recurrent`.
        **options: Further options of `Recurrent` (`locked_dropout`, `weight_drop`) and all options of the cell.

    Attributes:
        cell_class: The class of the cells.

    Raises:
        OptionError: An option is out of bounds or has another type.
        TypeError: The cell does not have an option.
    """

    cell_class: type[RecurrentCell]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        backend: str = "auto",
        locked_dropout: bool = False,
        weight_drop: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(
            partial(self.cell_class, hidden_size=hidden_size, **options),
            input_size,
            num_layers,
            batch_first=batch_first,
            dropout=dropout,
            bidirectional=bidirectional,
            backend=backend,
            locked_dropout=locked_dropout,
            weight_drop=weight_drop,
        )


class RUM(Layer):
    """Rotational unit of memory; see `gyral.cells.rum.RUMCell`."""

    cell_class = RUMCell


class GRU(Layer):
    """Gated recurrent unit; see `gyral.cells.gru.GRUCell`."""

    cell_class = GRUCell


class LSTM(Layer):
    """Long short-term memory; see `gyral.cells.lstm.LSTMCell`."""

    cell_class = LSTMCell


class RNN(Layer):
    """Elman network; see `gyral.cells.rnn.RNNCell`."""

    cell_class = RNNCell


class GORU(Layer):
    """Gated orthogonal recurrent unit; see `gyral.cells.goru.GORUCell`."""

    cell_class = GORUCell


class EURNN(Layer):
    """Efficient unitary recurrent network; see `gyral.cells.eurnn.EURNNCell`."""

    cell_class = EURNNCell


class URNN(Layer):
    """Unitary evolution recurrent network; see `gyral.cells.urnn.URNNCell`."""

    cell_class = URNNCell


class FullURNN(Layer):
    """Full-capacity unitary recurrent network; see `gyral.cells.full_urnn.FullURNNCell`."""

    cell_class = FullURNNCell


class FastWeights(Layer):
    """Recurrent network with fast weights; see `gyral.cells.fast_weights.FastWeightsCell`."""

    cell_class = FastWeightsCell


class WeiNet(Layer):
    """Recurrent network whose recurrent weights are a memory; see `gyral.cells.weinet.WeiNetCell`."""

    cell_class = WeiNetCell


class ONLSTM(Layer):
    """Ordered-neurons LSTM; see `gyral.cells.on_lstm.ONLSTMCell`."""

    cell_class = ONLSTMCell


class FSRNN(Layer):
    """Fast-slow recurrent network; see `gyral.cells.fs_rnn.FSRNNCell`."""

    cell_class = FSRNNCell
