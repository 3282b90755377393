"""A linear recurrence whose matrix is block-diagonal, h_t = h_{t−1} + A_t h_{t−1}, with blocks of b × b numbers."""

from torch import Tensor

from gyral.ops.block_scan import naive
from gyral.ops.block_scan.naive import step
from gyral.ops.operator import Operator, check_dtypes

__all__ = ["block_scan", "step"]

OPERATOR = Operator(naive.block_scan, {"cpu": "gyral.ops.block_scan.cpu"})


def block_scan(
    change: Tensor, values: Tensor, h0: Tensor, is_first: Tensor, *, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    T steps, B batch size, N units in ⌈N/b⌉ blocks; the last one may have fewer units than b.

    Args:
        change: The rows of A_t, (T, B, N, b): what a unit reads from the units of its block.
        values: (T, B, N), h_t at the first steps; other entries have no effect.
        h0: (B, N), the state before the first step.
        is_first: (T, B) bool: True where h_t is `values`, whatever the state before it.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and the state (B, N) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(change.dtype, values, h0)
    has_kernel = OPERATOR.has_kernel(change)
    run = OPERATOR if has_kernel else naive.block_scan
    outputs, final = run(change, values, h0, is_first, lengths)
    return outputs, final
