"""Layers whose recurrent weights change with the sequence."""

from typing import Unpack

from gyral.cells.fast_weights import FastWeightsCell
from gyral.cells.weinet import WeiNetCell
from gyral.nn.layers.base import Layer, LayerOptions


class FastWeights(Layer):
    """Recurrent network with fast weights.

    It takes the options of `gyral.cells.fast_weights.FastWeightsCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import FastWeights
        >>> layer = FastWeights(16, 64, decay=0.9)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = FastWeightsCell

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
        decay: float = 0.95,
        rate: float = 0.5,
        inner_steps: int = 1,
        activation: str = "relu",
        recurrent_scale: float = 0.05,
        layer_norm_eps: float = 1e-5,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            decay=decay,
            rate=rate,
            inner_steps=inner_steps,
            activation=activation,
            recurrent_scale=recurrent_scale,
            layer_norm_eps=layer_norm_eps,
            zoneout=zoneout,
            recurrent_dropout=recurrent_dropout,
            **options,
        )


class WeiNet(Layer):
    """Recurrent network whose recurrent weights are a memory.

    It takes the options of `gyral.cells.weinet.WeiNetCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import WeiNet
        >>> layer = WeiNet(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = WeiNetCell

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
        layer_norm: bool = True,
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
