"""A linear recurrence with complex numbers whose matrix has one number in each column, h_t = P_t (a_t ⊙ h_{t−1}) + b_t.

P_t is a matrix of zeros and ones, which sends each number to one place; several may go to the same. Complex numbers are
pairs: N real parts, then N imaginary parts.
"""

from torch import Tensor

from gyral.ops.operator import Operator, check_dtypes
from gyral.ops.permutation_scan import naive
from gyral.ops.permutation_scan.naive import step

__all__ = ["permutation_scan", "step"]

OPERATOR = Operator(naive.permutation_scan, {"cpu": "gyral.ops.permutation_scan.cpu"})


def permutation_scan(
    selection: Tensor,
    dictionary: Tensor,
    decay: Tensor,
    values: Tensor,
    h0: Tensor,
    *,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    T steps, B batch size, N complex numbers, K matrices. Plain torch takes log₂ T passes of O(N) for each step, besides
    the scores.

    Args:
        selection: s_t, (T, B, K).
        dictionary: M, (K, N, N). Column j of P_t has its one in the row with the largest entry of Σ_k s_{t,k} M_k. The
            gradient is that of a softmax over the rows in place of P_t (straight-through estimator).
        decay: a_t, (T, B, 2N).
        values: b_t, (T, B, 2N).
        h0: (B, 2N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, 2N), h_t, zero beyond the lengths, and the state (B, 2N) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(selection.dtype, dictionary, decay, values, h0)
    has_kernel = OPERATOR.has_kernel(values)
    run = OPERATOR if has_kernel else naive.permutation_scan
    outputs, final = run(selection, dictionary, decay, values, h0, lengths, starts)
    return outputs, final
