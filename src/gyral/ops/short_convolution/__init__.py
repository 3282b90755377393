"""A short depthwise convolution over time, followed by SiLU, as it precedes the recurrence of many layers.

y_{t,c} = SiLU(b_c + Σ_{j=0}^{K−1} w_{c,j} v_{t−K+1+j, c})
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from gyral.core.checks import check_integer
from gyral.ops.declaration import check_shape
from gyral.ops.native.kernels import Kernels, like
from gyral.ops.operator import Operator
from gyral.ops.sequences import reachable_since
from gyral.ops.short_convolution import naive

__all__ = ["short_convolution"]

LONGEST = 32  # weights of a window in the kernels of a CPU
LONGEST_ON_GPU = 8  # those of a GPU have no loop over a window


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    _, batch, channels = check_shape("values", a.values, *a.values.shape[:2], "C")
    _, kernel = check_shape("weight", a.weight, channels, "K")
    check_shape("bias", a.bias, channels)
    check_shape("history", a.history, batch, kernel - 1, channels)
    check_integer("first", a.first, minimum=0, maximum=channels)
    check_integer("second", a.second, minimum=0, maximum=channels - a.first)


def kernel_sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes, and the first step that each window reaches."""
    steps, batch, channels = a.values.shape
    kernel = a.weight.shape[1]
    return {
        "steps": steps,
        "batch": batch,
        "channels": channels,
        "kernel": kernel,
        "since": reachable_since(a.starts, kernel),
    }


def part(index: int) -> Any:
    """Return a function that allocates a part of the outputs."""

    def make(a: Any) -> Tensor:
        *shape, channels = a.values.shape
        sizes = a.first, a.second, channels - a.first - a.second
        return a.values.new_empty(*shape, sizes[index])

    return make


KERNELS = Kernels(
    Path(__file__).with_name("short_convolution.cpp"),
    sizes=kernel_sizes,
    results={f"part{index + 1}": part(index) for index in range(3)},
    gradients={"values": like("values"), "history": like("history")},
    sums=("weight", "bias"),
    layouts={"weight": (lambda weight: weight.T.contiguous(), lambda weight, _: weight.T)},
)
OPERATOR = Operator(
    naive.short_convolution,
    {"cpu": KERNELS, "cuda": "gyral.ops.short_convolution.triton"},
    supports=lambda a: a.weight.shape[-1] <= (LONGEST if a.values.device.type == "cpu" else LONGEST_ON_GPU),
    shapes=shapes,
)


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
    """Run the convolution over values (T, B, C).

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
    sizes = [len(weight)] if sizes is None else list(sizes)
    first, second = (*sizes, 0)[:2]
    found = OPERATOR(values, weight, bias, history, lengths, starts, first, second)
    return tuple(found[: len(sizes)])
