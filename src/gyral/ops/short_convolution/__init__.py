"""A short depthwise convolution over time, followed by SiLU, as it precedes the recurrence of many layers.

y_{t,c} = SiLU(b_c + Σ_{j=0}^{K−1} w_{c,j} v_{t−K+1+j, c})
"""

from collections.abc import Sequence

from torch import Tensor

from gyral.ops.operator import Operator, check_dtypes
from gyral.ops.sequences import reachable_since
from gyral.ops.short_convolution import naive

__all__ = ["short_convolution"]

OPERATOR = Operator(naive.short_convolution, {"cpu": "gyral.ops.short_convolution.cpu"})
LONGEST = 32  # weights of a kernel's window


def short_convolution(
    values: Tensor,
    weight: Tensor,
    history: Tensor,
    *,
    bias: Tensor | None = None,
    sizes: Sequence[int] | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """Run the convolution over values (T, B, C): by kernels where there are some, else in plain torch.

    Args:
        values: (T, B, C).
        weight: (C, K), a window for each channel, the weight of the newest value last.
        history: (B, K − 1, C), the values before the first step, the latest last.
        bias: (C,) or None.
        sizes: The numbers of channels of one to three parts, with the sum C; None: one part.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: earlier values count as zeros.

    Returns:
        The outputs in parts (T, B, size), zero beyond the lengths. Parts need no copy for what reads them.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(weight.dtype, values, history, bias)
    channels, kernel = weight.shape
    sizes = [channels] if sizes is None else list(sizes)
    has_kernel = kernel <= LONGEST and OPERATOR.has_kernel(values)
    run = OPERATOR if has_kernel else naive.short_convolution
    first, second = (*sizes, 0)[:2]
    found = run(values, weight, bias, history, lengths, reachable_since(starts, kernel), first, second)
    return tuple(found[: len(sizes)])
