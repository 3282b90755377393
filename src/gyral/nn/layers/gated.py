"""The layers that `torch.nn` has, too, and ordered neurons."""

from typing import Unpack

from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.on_lstm import ONLSTMCell
from gyral.cells.rnn import RNNCell
from gyral.nn.layers.base import Layer, LayerOptions, TorchWeights


class GRU(TorchWeights, Layer):
    """Gated recurrent unit.

    It takes the options of `gyral.cells.gru.GRUCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import GRU
        >>> layer = GRU(16, 64, bidirectional=True)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    cell_class = GRUCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            layer_norm=layer_norm,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            **options,
        )


class LSTM(TorchWeights, Layer):
    """Long short-term memory.

    It takes the options of `gyral.cells.lstm.LSTMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import LSTM
        >>> layer = LSTM(16, 64, layer_norm=True)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = LSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        proj_size: int = 0,
        peepholes: bool = False,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        zoneout: float = 0.0,
        zoneout_cell: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "torch",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            proj_size=proj_size,
            peepholes=peepholes,
            layer_norm=layer_norm,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            zoneout_cell=zoneout_cell,
            recurrent_dropout=recurrent_dropout,
            initialization=initialization,
            **options,
        )


class RNN(TorchWeights, Layer):
    """Elman network.

    It takes the options of `gyral.cells.rnn.RNNCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import RNN
        >>> layer = RNN(16, 64, nonlinearity="relu")
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = RNNCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        nonlinearity: str = "tanh",
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            nonlinearity=nonlinearity,
            layer_norm=layer_norm,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            **options,
        )


class ONLSTM(Layer):
    """Ordered-neurons LSTM.

    It takes the options of `gyral.cells.on_lstm.ONLSTMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import ONLSTM
        >>> layer = ONLSTM(16, 60, chunk_size=10)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 60])
    """

    cell_class = ONLSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        chunk_size: int | None = None,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            chunk_size=chunk_size,
            layer_norm=layer_norm,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            initialization=initialization,
            **options,
        )
