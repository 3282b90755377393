"""Linear recurrences whose matrices do not commute, which run in parallel over time."""

from typing import Unpack

from gyral.cells.pd_ssm import PDSSMCell
from gyral.cells.rotation_scan import RotationScanCell
from gyral.cells.slice import SLiCECell
from gyral.nn.layers.base import Layer, LayerOptions


class RotationScan(Layer):
    """Rotation scan, a rotational unit of memory that runs in parallel over time.

    It takes the options of `gyral.cells.rotation_scan.RotationScanCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import RotationScan
        >>> layer = RotationScan(16, 64, heads=2)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = RotationScanCell

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
        angle: str = "double",
        eta: float | None = None,
        activation: str = "relu",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, heads=heads, angle=angle, eta=eta, activation=activation, **options)


class PDSSM(Layer):
    """PD-SSM, a state space whose matrix moves the numbers of the state.

    It takes the options of `gyral.cells.pd_ssm.PDSSMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import PDSSM
        >>> layer = PDSSM(16, 64, state_size=8)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = PDSSMCell

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
        dictionary_size: int = 8,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, state_size=state_size, dictionary_size=dictionary_size, **options)


class SLiCE(Layer):
    """Structured linear controlled differential equation with a block-diagonal matrix.

    It takes the options of `gyral.cells.slice.SLiCECell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import SLiCE
        >>> layer = SLiCE(16, 64, block_size=8)
        >>> outputs, state = layer(torch.randn(50, 8, 16))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = SLiCECell

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
        block_size: int = 4,
        dt: float = 1.0,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(*common, block_size=block_size, dt=dt, **options)
