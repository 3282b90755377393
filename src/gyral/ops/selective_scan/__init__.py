"""The selective state space of Mamba (Gu and Dao 2023, S6): one state for each channel, with gates that read the input.

h_{t,d} = exp(Δ_{t,d} A_d) ⊙ h_{t−1,d} + Δ_{t,d} u_{t,d} B_t
y_{t,d} = C_tᵀ h_{t,d}
"""

from torch import Tensor

from gyral.ops.operator import Operator, check_dtypes
from gyral.ops.selective_scan import naive
from gyral.ops.selective_scan.naive import coefficients

__all__ = ["coefficients", "selective_scan"]

OPERATOR = Operator(naive.selective_scan, {"cpu": "gyral.ops.selective_scan.cpu"})


def selective_scan(
    u: Tensor,
    delta: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    h0: Tensor,
    *,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    T steps, B batch size, D channels, N numbers in the state of a channel. A kernel keeps only the state before every
    sixteenth step for its backward pass, and computes the others again.

    Args:
        u: (T, B, D).
        delta: Step sizes Δ, (T, B, D).
        a: A, (D, N), negative.
        b, c: B and C, (T, B, N).
        h0: (B, D, N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, D), y_t, zero beyond the lengths, and the state (B, D, N) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(u.dtype, delta, a, b, c, h0)
    has_kernel = OPERATOR.has_kernel(u)
    run = OPERATOR if has_kernel else naive.selective_scan
    outputs, final = run(u, delta, a, b, c, h0, lengths, starts)
    return outputs, final
