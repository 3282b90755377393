"""Layers with an external memory."""

from collections.abc import Callable
from typing import Unpack

from gyral.cells.base import RecurrentCell
from gyral.cells.dnc import DNCCell
from gyral.cells.lantm import LANTMCell
from gyral.cells.ntm import NTMCell
from gyral.nn.layers.base import Layer, LayerOptions


class LANTM(Layer):
    """Lie-access neural Turing machine.

    It takes the options of `gyral.cells.lantm.LANTMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import LANTM, MaskedInputs
        >>> write = torch.arange(50).unsqueeze(1).expand(50, 8) < 20  # the first 20 steps
        >>> layer = LANTM(16, 64, width=8, capacity=50)
        >>> outputs, state = layer(MaskedInputs(torch.randn(50, 8, 16), write))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    cell_class = LANTMCell

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
        controller: Callable[..., RecurrentCell] | None = None,
        width: int = 20,
        weighting: str = "inv_norm",
        group: str = "translation",
        normalize_steps: bool = True,
        interpolate_steps: bool = True,
        read_first: bool = False,
        write_gate_bias: float = -10.0,
        capacity: int | None = None,
        forget: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            controller=controller,
            width=width,
            weighting=weighting,
            group=group,
            normalize_steps=normalize_steps,
            interpolate_steps=interpolate_steps,
            read_first=read_first,
            write_gate_bias=write_gate_bias,
            capacity=capacity,
            forget=forget,
            **options,
        )


class NTM(Layer):
    """Neural Turing machine.

    It takes the options of `gyral.cells.ntm.NTMCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import NTM, MaskedInputs
        >>> write = torch.arange(50).unsqueeze(1).expand(50, 8) < 20  # the first 20 steps
        >>> layer = NTM(16, 64, slots=32, width=8)
        >>> outputs, state = layer(MaskedInputs(torch.randn(50, 8, 16), write))
        >>> outputs.shape
        torch.Size([50, 8, 72])
    """

    cell_class = NTMCell

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
        controller: Callable[..., RecurrentCell] | None = None,
        slots: int = 128,
        width: int = 20,
        read_heads: int = 1,
        write_heads: int = 1,
        max_shift: int = 1,
        initial_memory: str = "constant",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            controller=controller,
            slots=slots,
            width=width,
            read_heads=read_heads,
            write_heads=write_heads,
            max_shift=max_shift,
            initial_memory=initial_memory,
            **options,
        )


class DNC(Layer):
    """Differentiable neural computer.

    It takes the options of `gyral.cells.dnc.DNCCell` and `gyral.nn.layers.base.Layer`.

    Example:
        >>> import torch
        >>> from gyral import DNC, MaskedInputs
        >>> write = torch.arange(50).unsqueeze(1).expand(50, 8) < 20  # the first 20 steps
        >>> layer = DNC(16, 64, slots=8, width=8, read_heads=2)
        >>> outputs, state = layer(MaskedInputs(torch.randn(50, 8, 16), write))
        >>> outputs.shape
        torch.Size([50, 8, 80])
    """

    cell_class = DNCCell

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
        controller: Callable[..., RecurrentCell] | None = None,
        slots: int = 16,
        width: int = 16,
        read_heads: int = 4,
        equations: str = "paper",
        **options: Unpack[LayerOptions],
    ) -> None:
        common = input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        super().__init__(
            *common,
            controller=controller,
            slots=slots,
            width=width,
            read_heads=read_heads,
            equations=equations,
            **options,
        )
