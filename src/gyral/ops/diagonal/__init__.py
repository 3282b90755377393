"""A linear recurrence whose matrix is diagonal, h_t = a_t ⊙ h_{t−1} + b_t, real or complex."""

from torch import Tensor

from gyral.ops.diagonal import naive
from gyral.ops.diagonal.naive import multiply, reciprocal
from gyral.ops.operator import Operator, check_dtypes

__all__ = ["diagonal_scan", "multiply", "reciprocal"]

OPERATOR = Operator(naive.diagonal_scan, {"cpu": "gyral.ops.diagonal.cpu"})


def diagonal_scan(
    values: Tensor,
    decay: Tensor,
    h0: Tensor,
    *,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    is_complex: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    T steps, B batch size, N units. A vector of complex numbers has W = 2N entries: the N real parts, then the N
    imaginary parts. Otherwise W = N.

    Args:
        values: b_t, (T, B, W).
        decay: a_t, (T, B, W), or (W,) if it is the same at all steps.
        h0: (B, W), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.
        is_complex: Whether the numbers are complex.

    Returns:
        outputs (T, B, W), h_t, zero beyond the lengths, and the state (B, W) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(values.dtype, decay, h0)
    has_kernel = OPERATOR.has_kernel(values)
    outputs, final = (OPERATOR if has_kernel else naive.diagonal_scan)(values, decay, h0, lengths, starts, is_complex)
    return outputs, final
