"""Convolutions over time."""

from typing import Unpack

from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.light_conv import LightConvCell
from gyral.nn.layers.base import Layer, LayerOptions


class LightConv(Layer):
    """Light convolution.

    It takes the options of `gyral.cells.light_conv.LightConvCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import LightConv
        >>> layer = LightConv(16, 64, kernel_size=7)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = LightConvCell

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
        kernel_size: int = 31,
        heads: int | None = None,
        weight_dropout: float = 0.0,
        softmax: bool = True,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            kernel_size=kernel_size,
            heads=heads,
            weight_dropout=weight_dropout,
            softmax=softmax,
            initialization=initialization,
            **options,
        )


class DynamicConv(Layer):
    """Dynamic convolution.

    It takes the options of `gyral.cells.dynamic_conv.DynamicConvCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import DynamicConv
        >>> layer = DynamicConv(16, 64, kernel_size=7)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = DynamicConvCell

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
        kernel_size: int = 31,
        heads: int | None = None,
        weight_dropout: float = 0.0,
        softmax: bool = True,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            kernel_size=kernel_size,
            heads=heads,
            weight_dropout=weight_dropout,
            softmax=softmax,
            initialization=initialization,
            **options,
        )
