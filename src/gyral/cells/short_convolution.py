"""The base class of cells with a short convolution before their recurrence."""

from typing import Any

import torch
from torch import Tensor, nn

from gyral.cells.base import RecurrentCell, State
from gyral.core.checks import check_integer
from gyral.ops.convolution import convolution, window


class ConvolvedCell(RecurrentCell):
    """Base class of cells whose values may pass a short convolution over time, a window for each channel.

    `create_convolution` decides whether they do. The state then has a field `window` (B, kernel_size − 1, C), the last
    inputs of the convolution, the latest last. The values, convolved or not, go on to `enter`.
    """

    weight_conv: Any  # parameters, or None without a convolution
    bias_conv: Any

    def create_convolution(self, channels: int, kernel_size: int | None, bias: bool = False) -> None:
        """Create the parameters `weight_conv` (C, kernel_size) and `bias_conv` (C,); None: without a convolution."""
        self.kernel_size = None if kernel_size is None else check_integer("kernel_size", kernel_size, minimum=2)
        self.channels = channels
        self.weight_conv = None if kernel_size is None else nn.Parameter(torch.empty(channels, kernel_size))
        self.bias_conv = nn.Parameter(torch.empty(channels)) if bias and kernel_size is not None else None

    def init_window(self, batch_size: int) -> Tensor:
        """Return the window before the first step; without a convolution it has no places."""
        return self.zeros(batch_size, 0 if self.kernel_size is None else self.kernel_size - 1, self.channels)

    def enter(self, values: Tensor) -> Any:
        """Return what the recurrence gets, for the sums of the convolution (…, C), or the values without one."""
        return values

    def convolve_step(self, values: Tensor, state: State) -> tuple[Any, State]:
        """Return the entered values (B, C) of one step, and the state with the window after it."""
        if self.kernel_size is None:
            return self.enter(values), state
        inside = torch.cat((state.window, values.unsqueeze(1)), dim=1)
        return self.enter((inside * self.weight_conv.T).sum(1)), state._replace(window=inside[:, 1:])

    def convolve(
        self, values: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Any, State]:
        """Return the entered values (T, B, C) of all steps, and the state with the last window."""
        if self.kernel_size is None:
            return self.enter(values), state
        sums = convolution(values, self.weight_conv, state.window, lengths=lengths, starts=starts)
        return self.enter(sums), state._replace(window=window(values, state.window, lengths, starts))
