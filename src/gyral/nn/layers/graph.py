"""Layers that read earlier states along typed edges."""

from collections.abc import Callable
from typing import Unpack

from gyral.cells.base import RecurrentCell
from gyral.cells.mage import MAGECell
from gyral.cells.mage_gru import MAGEGRUCell
from gyral.nn.layers.base import Layer, LayerOptions


class MAGEGRU(Layer):
    """GRU that reads earlier states along typed edges.

    It takes the options of `gyral.cells.mage_gru.MAGEGRUCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import MAGEGRU, LinkedInputs
        >>> edges = torch.zeros(50, 8, 2, 1, dtype=torch.int64)
        >>> edges[12, 0, 1, 0] = 5  # row 0, type 2: from step 7 to step 12
        >>> layer = MAGEGRU(16, 64, edge_types=2, edge_size=16)
        >>> outputs, state = layer(LinkedInputs(torch.randn(50, 8, 16), edges))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = MAGEGRUCell

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
        edge_types: int = 1,
        edge_size: int | None = None,
        carry: str = "previous",
        edge_attention: bool = False,
        capacity: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            edge_types=edge_types,
            edge_size=edge_size,
            carry=carry,
            edge_attention=edge_attention,
            capacity=capacity,
            **options,
        )


class MAGE(Layer):
    """Any cell, with its hidden vector gathered along typed edges.

    It takes the options of `gyral.cells.mage.MAGECell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> from functools import partial
        >>> import torch
        >>> import gyral
        >>> from gyral import MAGE
        >>> layer = MAGE(16, 64, cell=partial(gyral.RUMCell, eta=1.0))
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = MAGECell

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
        cell: Callable[..., RecurrentCell] | None = None,
        edge_types: int = 1,
        edge_size: int | None = None,
        capacity: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, cell=cell, edge_types=edge_types, edge_size=edge_size, capacity=capacity, **options)
