"""Layers whose state is a memory matrix for each head."""

from typing import Unpack

from gyral.cells.gla import GLACell
from gyral.cells.hgrn2 import HGRN2Cell
from gyral.cells.mamba2 import Mamba2Cell
from gyral.cells.mamba3 import Mamba3Cell
from gyral.cells.mlstm import MLSTMCell, MLSTMLargeCell
from gyral.cells.rwkv7 import RWKV7Cell
from gyral.nn.layers.base import Layer, LayerOptions


class GLA(Layer):
    """Gated linear attention, without the matrix after the recurrence.

    It takes the options of `gyral.cells.gla.GLACell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import GLA
        >>> layer = GLA(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = GLACell

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
        gate_rank: int = 16,
        gate_normalizer: float = 16.0,
        gate: bool = True,
        kernel_size: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            key_size=key_size,
            gate_rank=gate_rank,
            gate_normalizer=gate_normalizer,
            gate=gate,
            kernel_size=kernel_size,
            **options,
        )


class HGRN2(Layer):
    """HGRN2, without the matrix after the recurrence.

    It takes the options of `gyral.cells.hgrn2.HGRN2Cell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import HGRN2
        >>> layer = HGRN2(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = HGRN2Cell

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
        heads: int | None = None,
        key_size: int | None = None,
        lower_bound: float = 0.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            key_size=key_size,
            lower_bound=lower_bound,
            **options,
        )


class Mamba2(Layer):
    """Mamba-2, without the matrix after the recurrence.

    It takes the options of `gyral.cells.mamba2.Mamba2Cell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import Mamba2
        >>> layer = Mamba2(16, 64, state_size=16)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = Mamba2Cell

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
        heads: int | None = None,
        state_size: int = 128,
        groups: int = 1,
        kernel_size: int = 4,
        norm: bool = True,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            state_size=state_size,
            groups=groups,
            kernel_size=kernel_size,
            norm=norm,
            **options,
        )


class MLSTM(Layer):
    """mLSTM of xLSTM, without the matrix after the recurrence.

    It takes the options of `gyral.cells.mlstm.MLSTMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import MLSTM
        >>> layer = MLSTM(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = MLSTMCell

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
        heads: int | None = None,
        kernel_size: int = 4,
        block: int = 4,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, heads=heads, kernel_size=kernel_size, block=block, **options)


class MLSTMLarge(Layer):
    """mLSTM of xLSTM 7B, without the matrix after the recurrence.

    It takes the options of `gyral.cells.mlstm.MLSTMLargeCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import MLSTMLarge
        >>> layer = MLSTMLarge(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = MLSTMLargeCell

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
        heads: int | None = None,
        key_size: int | None = None,
        cap: float = 15.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, heads=heads, key_size=key_size, cap=cap, **options)


class RWKV7(Layer):
    """RWKV-7, without the matrix after the recurrence.

    It takes the options of `gyral.cells.rwkv7.RWKV7Cell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import RWKV7
        >>> layer = RWKV7(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = RWKV7Cell

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
        heads: int | None = None,
        decay_rank: int | None = None,
        rate_rank: int | None = None,
        gate_rank: int | None = None,
        layer: int = 0,
        layers: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            decay_rank=decay_rank,
            rate_rank=rate_rank,
            gate_rank=gate_rank,
            layer=layer,
            layers=layers,
            **options,
        )


class Mamba3(Layer):
    """Mamba-3, without the matrix after the recurrence.

    It takes the options of `gyral.cells.mamba3.Mamba3Cell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import Mamba3
        >>> layer = Mamba3(16, 64, state_size=16, rank=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = Mamba3Cell

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
        heads: int | None = None,
        state_size: int = 128,
        groups: int = 1,
        rank: int = 1,
        rope_fraction: float = 0.5,
        norm: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            state_size=state_size,
            groups=groups,
            rank=rank,
            rope_fraction=rope_fraction,
            norm=norm,
            **options,
        )
