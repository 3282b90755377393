"""Layers whose hidden vector is rotated."""

from typing import Unpack

from gyral.cells.goru import GORUCell
from gyral.cells.rum import RUMCell
from gyral.nn.layers.base import Layer, LayerOptions


class RUM(Layer):
    """Rotational unit of memory.

    It takes the options of `gyral.cells.rum.RUMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import RUM
        >>> layer = RUM(16, 64, num_layers=2, lambd=1.0)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = RUMCell

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
        lambd: float = 0.0,
        eta: float | None = None,
        activation: str = "relu",
        update_gate: bool = True,
        trainable_target: bool = True,
        trainable_embedding: bool = True,
        layer_norm: bool = False,
        layer_norm_eps: float = 1e-5,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        initialization: str = "two_block",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            lambd=lambd,
            eta=eta,
            activation=activation,
            update_gate=update_gate,
            trainable_target=trainable_target,
            trainable_embedding=trainable_embedding,
            layer_norm=layer_norm,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            initialization=initialization,
            **options,
        )


class GORU(Layer):
    """Gated orthogonal recurrent unit.

    It takes the options of `gyral.cells.goru.GORUCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import GORU
        >>> layer = GORU(16, 64, capacity="fft")
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = GORUCell

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
            capacity=capacity,
            layer_norm=layer_norm,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            initialization=initialization,
            **options,
        )
