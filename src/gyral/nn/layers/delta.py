"""Layers with the delta rule: a memory matrix for each head that is read, erased and written by keys."""

from typing import Unpack

from gyral.cells.delta_net import DeltaNetCell
from gyral.cells.delta_product import DeltaProductCell
from gyral.cells.gated_delta_net import GatedDeltaNetCell
from gyral.cells.kda import GatedDeltaNet2Cell, KDACell
from gyral.nn.layers.base import Layer, LayerOptions


class DeltaNet(Layer):
    """DeltaNet: linear attention with the delta rule, without the matrix after the memory.

    It takes the options of `gyral.cells.delta_net.DeltaNetCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import DeltaNet
        >>> layer = DeltaNet(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = DeltaNetCell

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
        kernel_size: int | None = 4,
        negative_eigenvalues: bool = False,
        gate: bool = False,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            kernel_size=kernel_size,
            negative_eigenvalues=negative_eigenvalues,
            gate=gate,
            initialization=initialization,
            **options,
        )


class GatedDeltaNet(Layer):
    """Gated DeltaNet: the delta rule with a decay, without the matrix after the memory.

    It takes the options of `gyral.cells.gated_delta_net.GatedDeltaNetCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import GatedDeltaNet
        >>> layer = GatedDeltaNet(16, 64, expand=1)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = GatedDeltaNetCell

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
        expand: int = 2,
        kernel_size: int | None = 4,
        negative_eigenvalues: bool = False,
        gate: bool = True,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            expand=expand,
            kernel_size=kernel_size,
            negative_eigenvalues=negative_eigenvalues,
            gate=gate,
            initialization=initialization,
            **options,
        )


class DeltaProduct(Layer):
    """DeltaProduct: several steps of the delta rule for each input, without the matrix after the memory.

    It takes the options of `gyral.cells.delta_product.DeltaProductCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import DeltaProduct
        >>> layer = DeltaProduct(16, 64, micro_steps=3)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 128])
    """

    cell_class = DeltaProductCell

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
        expand: int = 2,
        micro_steps: int = 2,
        kernel_size: int | None = 4,
        negative_eigenvalues: bool = True,
        decay: bool = True,
        gate: bool = True,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            expand=expand,
            micro_steps=micro_steps,
            kernel_size=kernel_size,
            negative_eigenvalues=negative_eigenvalues,
            decay=decay,
            gate=gate,
            initialization=initialization,
            **options,
        )


class KDA(Layer):
    """Kimi Delta Attention: the delta rule with a decay for each channel, without the matrix after the memory.

    It takes the options of `gyral.cells.kda.KDACell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import KDA
        >>> layer = KDA(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = KDACell

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
        expand: int = 1,
        kernel_size: int | None = 4,
        rank: int | None = None,
        decay_bound: float | None = None,
        negative_eigenvalues: bool = False,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            expand=expand,
            kernel_size=kernel_size,
            rank=rank,
            decay_bound=decay_bound,
            negative_eigenvalues=negative_eigenvalues,
            initialization=initialization,
            **options,
        )


class GatedDeltaNet2(Layer):
    """Gated DeltaNet-2: KDA with rates for each channel, without the matrix after the memory.

    It takes the options of `gyral.cells.kda.GatedDeltaNet2Cell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import GatedDeltaNet2
        >>> layer = GatedDeltaNet2(16, 64)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = GatedDeltaNet2Cell

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
        expand: int = 1,
        kernel_size: int | None = 4,
        rank: int | None = None,
        decay_bound: float | None = None,
        negative_eigenvalues: bool = False,
        initialization: str = "default",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            heads=heads,
            expand=expand,
            kernel_size=kernel_size,
            rank=rank,
            decay_bound=decay_bound,
            negative_eigenvalues=negative_eigenvalues,
            initialization=initialization,
            **options,
        )
