"""Linear recurrences with a diagonal matrix, which run in parallel over time."""

from typing import Unpack

from gyral.cells.lru import LRUCell
from gyral.cells.mamba import MambaCell
from gyral.cells.min_gru import MinGRUCell
from gyral.cells.min_lstm import MinLSTMCell
from gyral.cells.rg_lru import RGLRUCell
from gyral.cells.s4d import S4DCell
from gyral.cells.s5 import S5Cell
from gyral.nn.layers.base import Layer, LayerOptions


class MinGRU(Layer):
    """minGRU.

    It takes the options of `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import MinGRU
        >>> layer = MinGRU(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = MinGRUCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **options)


class MinLSTM(Layer):
    """minLSTM.

    It takes the options of `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import MinLSTM
        >>> layer = MinLSTM(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = MinLSTMCell

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, **options)


class LRU(Layer):
    """Linear recurrent unit.

    It takes the options of `gyral.cells.lru.LRUCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import LRU
        >>> layer = LRU(16, 64, r_min=0.9)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = LRUCell

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
        state_size: int | None = None,
        r_min: float = 0.0,
        r_max: float = 1.0,
        max_phase: float = 6.28,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, state_size=state_size, r_min=r_min, r_max=r_max, max_phase=max_phase, **options)


class RGLRU(Layer):
    """Real-gated linear recurrent unit of Griffin.

    It takes the options of `gyral.cells.rg_lru.RGLRUCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import RGLRU
        >>> layer = RGLRU(16, 64, heads=4)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = RGLRUCell

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
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, heads=heads, **options)


class S4D(Layer):
    """Diagonal state space of each channel.

    It takes the options of `gyral.cells.s4d.S4DCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import S4D
        >>> layer = S4D(16, 64, state_size=8)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = S4DCell

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
        state_size: int = 32,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, state_size=state_size, **options)


class S5(Layer):
    """Simplified state space layer.

    It takes the options of `gyral.cells.s5.S5Cell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import S5
        >>> layer = S5(16, 64, state_size=32)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = S5Cell

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
        state_size: int | None = None,
        discretization: str = "zoh",
        clip_eigs: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, state_size=state_size, discretization=discretization, clip_eigs=clip_eigs, **options)


class Mamba(Layer):
    """Mamba, without the matrix after the recurrence.

    It takes the options of `gyral.cells.mamba.MambaCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import Mamba
        >>> layer = Mamba(16, 32, state_size=8)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 32])
    """

    cell_class = MambaCell

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
        state_size: int = 16,
        kernel_size: int = 4,
        dt_rank: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, state_size=state_size, kernel_size=kernel_size, dt_rank=dt_rank, **options)
