"""The convolution of `gyral.ops.short_convolution` in plain torch, one weight of the window after the other.

The kernels compute the same. This code runs where there is no kernel, and gives the kernels' second derivatives.
"""

from torch import Tensor
from torch.nn import functional as F

from gyral.ops.convolution.naive import convolution
from gyral.ops.sequences import zero_beyond


def short_convolution(
    values: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    history: Tensor,
    lengths: Tensor | None,
    starts: Tensor | None,
    first: int,
    second: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the parts (T, B, …) of the outputs, of which the first two have the given numbers of channels.

    See `gyral.ops.short_convolution.short_convolution`.
    """
    sums = convolution(values, weight, history, None, lengths, starts)
    outputs = F.silu(sums) if bias is None else zero_beyond(F.silu(sums + bias), lengths)
    part1, part2, part3 = outputs.split([first, second, len(weight) - first - second], dim=2)
    return part1, part2, part3
