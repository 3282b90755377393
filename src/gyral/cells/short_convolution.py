"""The base class of cells with a short convolution before their recurrence."""

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import DeclaredCell, State
from gyral.ops.convolution import window as last_window
from gyral.ops.short_convolution import short_convolution


class ConvolvedCell(DeclaredCell):
    """Base class of cells whose values may pass a short convolution over time, a window for each channel, and SiLU.

    `create_convolution` decides whether they do. The state then has a field `window` (B, kernel_size − 1, C), the last
    inputs of the convolution, the latest last. Without a convolution, `activate_without_convolution` takes its place.
    """

    steps_alone = True
    weight_conv: Any = field(init=False)  # parameters, or None without a convolution
    bias_conv: Any = field(init=False)

    def create_convolution(self, sizes: Sequence[int], kernel_size: int | None, bias: bool = False) -> None:
        """Create the parameters `weight_conv` (C, kernel_size) and `bias_conv` (C,).

        Args:
            sizes: The numbers of channels of the parts that the recurrence gets, with the sum C; at most three.
            kernel_size: ≥ 2, or None: without a convolution.
            bias: Whether there is a bias.
        """
        self.parts, self.channels = tuple(sizes), sum(sizes)
        self.kernel_size = kernel_size
        self.weight_conv = None if kernel_size is None else nn.Parameter(torch.empty(self.channels, kernel_size))
        self.bias_conv = nn.Parameter(torch.empty(self.channels)) if bias and kernel_size is not None else None

    def init_window(self, batch_size: int) -> Tensor:
        """Return the window before the first step; without a convolution it has no places."""
        return self.zeros(batch_size, 0 if self.kernel_size is None else self.kernel_size - 1, self.channels)

    def activate_without_convolution(self, values: Tensor) -> Tensor:
        """Return the values that replace the convolved ones."""
        return values

    def convolve_step(self, values: Tensor, state: State) -> tuple[Any, State]:
        """Return the parts (B, …) of one step, and the state with the window after it."""
        if self.kernel_size is None:
            return self.activate_without_convolution(values).split(self.parts, dim=-1), state
        inside = torch.cat((state.window, values.unsqueeze(1)), dim=1)
        sums = (inside * self.weight_conv.T).sum(1)
        outputs = F.silu(sums if self.bias_conv is None else sums + self.bias_conv)
        parts = (outputs,) if len(self.parts) == 1 else outputs.split(self.parts, dim=-1)
        _, window = inside.split((1, self.kernel_size - 1), dim=1)  # a slice takes an exported step longer
        return parts, state._replace(window=window)

    def convolve(
        self, values: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Any, State]:
        """Return the parts (T, B, …) of all steps, and the state with the last window."""
        if self.kernel_size is None:
            return self.activate_without_convolution(values).split(self.parts, dim=-1), state
        weights = {"weight": self.weight_conv, "bias": self.bias_conv, "sizes": self.parts}
        parts = short_convolution(values, history=state.window, lengths=lengths, starts=starts, **weights)
        return parts, state._replace(window=last_window(values, state.window, lengths, starts))
