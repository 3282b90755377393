"""The recurrences minGRU and minLSTM (Feng et al., "Were RNNs all we needed?", 2024): gates that do not read the state.

h_t = (1 − z_t) ⊙ h_{t−1} + z_t ⊙ g(c_t), with g(c) = c + ½ if c ≥ 0, else σ(c)
minGRU: z_t = σ(k_t);  minLSTM: z_t = σ(i_t) / (σ(f_t) + σ(i_t))
"""

from torch import Tensor

from gyral.ops.min_gated import naive
from gyral.ops.min_gated.naive import coefficients
from gyral.ops.operator import Operator, check_dtypes

__all__ = ["coefficients", "min_gated"]

OPERATOR = Operator(naive.min_gated, {"cpu": "gyral.ops.min_gated.cpu"})


def min_gated(
    projected: Tensor, h0: Tensor, *, lengths: Tensor | None = None, starts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    Args:
        projected: (T, B, 2N), rows [c; k] of a minGRU, or (T, B, 3N), rows [c; f; i] of a minLSTM.
        h0: (B, N), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and the state (B, N) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(projected.dtype, h0)
    has_kernel = OPERATOR.has_kernel(projected)
    outputs, final = (OPERATOR if has_kernel else naive.min_gated)(projected, h0, lengths, starts)
    return outputs, final
