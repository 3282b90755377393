"""The interface of the kernels of `gyral.ops.convolution`.

T steps, B batch size, N channels, H heads, K weights of a head.
"""

from typing import NamedTuple

import torch
from torch import Tensor

MODULES = {"cpu": "gyral.ops.convolution.cpu"}


class Window(NamedTuple):
    """The arguments of a convolution that have no gradient.

    Attributes:
        back: Number of steps from the first value in a window back to the step of the output, in [0, K − 1]; K − 1: no
            output depends on later values.
        mask: (T, B, H, K), factors of the weights of each step, or None.
        lengths: (B,) int64 in [1, T], or None.
        since: (T, B) int64: values from before this step count as zeros; negative ones are in the history. Or None:
            nothing is out of reach.
    """

    back: int
    mask: Tensor | None = None
    lengths: Tensor | None = None
    since: Tensor | None = None


class Arguments(NamedTuple):
    """The arguments of a kernel.

    Attributes:
        values: (T, B, N).
        weights: (H, K), or the scores (T, B, H, K) of the weights of each step, before their softmax.
        history: (B, P, N), the values before the first step, the latest last; or None stands for zeros.
        window: See `Window`.
    """

    values: Tensor
    weights: Tensor
    history: Tensor | None
    window: Window


def head_of_channel(channels: int, heads: int, device: torch.device) -> Tensor:
    """Return the head (N,) of each channel: consecutive channels, as many or one more."""
    return torch.arange(channels, device=device) * heads // channels
