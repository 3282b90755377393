"""Networks whose recurrence is nonlinear and has no parallel form."""

from typing import Unpack

from gyral.cells.exprnn import DTRIVCell, ExpRNNCell
from gyral.cells.m2rnn import M2RNNCell
from gyral.cells.slstm import SLSTMCell
from gyral.nn.layers.base import Layer, LayerOptions


class SLSTM(Layer):
    """sLSTM: an LSTM with exponential gates, without the matrix after it.

    It takes the options of `gyral.cells.slstm.SLSTMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import SLSTM
        >>> layer = SLSTM(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = SLSTMCell

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
        heads: int = 1,
        kernel_size: int | None = 4,
        depth: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            kernel_size=kernel_size,
            depth=depth,
            **options,
        )


class M2RNN(Layer):
    """M²RNN: a memory matrix with a nonlinear recurrence, without the matrix after it.

    It takes the options of `gyral.cells.m2rnn.M2RNNCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import M2RNN
        >>> layer = M2RNN(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = M2RNNCell

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
        heads: int = 4,
        key_size: int | None = None,
        shared_keys: bool = True,
        kernel_size: int | None = 4,
        clip: float | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            key_size=key_size,
            shared_keys=shared_keys,
            kernel_size=kernel_size,
            clip=clip,
            **options,
        )


class ExpRNN(Layer):
    """expRNN: a network whose orthogonal matrix is a matrix exponential.

    It takes the options of `gyral.cells.exprnn.ExpRNNCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import ExpRNN
        >>> layer = ExpRNN(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = ExpRNNCell

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
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            **options,
        )


class DTRIV(Layer):
    """dtriv: expRNN with a base that changes in training; see `gyral.cells.exprnn.DTRIVCell.after_optimizer_step`.

    It takes the options of `gyral.cells.exprnn.DTRIVCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import DTRIV
        >>> layer = DTRIV(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = DTRIVCell

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
        base_steps: int = 100,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            base_steps=base_steps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            **options,
        )
