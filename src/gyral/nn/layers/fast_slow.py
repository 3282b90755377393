"""Layers of fast and slow cells."""

from collections.abc import Callable
from typing import Unpack

from gyral.cells.base import RecurrentCell
from gyral.cells.fs_rnn import FSRNNCell
from gyral.nn.layers.base import Layer, LayerOptions


class FSRNN(Layer):
    """Fast-slow recurrent network.

    It takes the options of `gyral.cells.fs_rnn.FSRNNCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> import gyral
        >>> from gyral import FSRNN
        >>> layer = FSRNN(16, 64, fast=gyral.LSTMCell, slow=gyral.LSTMCell)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = FSRNNCell

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
        fast: Callable[..., RecurrentCell],
        slow: Callable[..., RecurrentCell],
        slow_size: int | None = None,
        num_fast: int = 2,
        cell_dropout: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            fast=fast,
            slow=slow,
            slow_size=slow_size,
            num_fast=num_fast,
            cell_dropout=cell_dropout,
            **options,
        )
