"""Layers with a unitary recurrent matrix."""

from typing import Unpack

from gyral.cells.eurnn import EURNNCell
from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.urnn import URNNCell
from gyral.nn.layers.base import Layer, LayerOptions


class EURNN(Layer):
    """Efficient unitary recurrent network.

    It takes the options of `gyral.cells.eurnn.EURNNCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import EURNN
        >>> layer = EURNN(16, 64, capacity=4)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    cell_class = EURNNCell

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
        capacity: int | str = 2,
        is_complex: bool = True,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            capacity=capacity,
            is_complex=is_complex,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            initialization=initialization,
            **options,
        )


class URNN(Layer):
    """Unitary evolution recurrent network.

    It takes the options of `gyral.cells.urnn.URNNCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import URNN
        >>> layer = URNN(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    cell_class = URNNCell

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
        initialization: str = "default",
        learned_initial_state: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            initialization=initialization,
            learned_initial_state=learned_initial_state,
            **options,
        )


class FullURNN(Layer):
    """Full-capacity unitary recurrent network.

    It takes the options of `gyral.cells.full_urnn.FullURNNCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import FullURNN
        >>> layer = FullURNN(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    cell_class = FullURNNCell

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
        initialization: str = "default",
        learned_initial_state: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            initialization=initialization,
            learned_initial_state=learned_initial_state,
            **options,
        )
