"""The recurrence of sLSTM (Beck et al., "xLSTM: extended long short-term memory", NeurIPS 2024, section 2.2).

With [i; f; z; o] = projected + R y_{t−1}, R block-diagonal:

m_t = max(log σ(f) + m_{t−1}, i), f' = exp(log σ(f) + m_{t−1} − m_t), i' = exp(i − m_t)
c_t = f' ⊙ c_{t−1} + i' ⊙ tanh(z), n_t = f' ⊙ n_{t−1} + i', y_t = σ(o) ⊙ c_t / n_t
"""

from torch import Tensor

from gyral.ops.operator import Operator, check_dtypes
from gyral.ops.slstm import naive
from gyral.ops.slstm.naive import lowest_scale

__all__ = ["lowest_scale", "slstm"]

OPERATOR = Operator(naive.slstm, {"cpu": "gyral.ops.slstm.cpu"})


def slstm(
    projected: Tensor,
    weight_hh: Tensor,
    hidden: Tensor,
    cell: Tensor,
    normalizer: Tensor,
    scale: Tensor,
    *,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    Args:
        projected: (T, B, 4N), rows [i; f; z; o].
        weight_hh: (H, 4, d, d) with N = H·d, the blocks of R of each head and gate.
        hidden, cell, normalizer, scale: (B, N), y, c, n and m before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: y, c and n count as zero, and m as −10³⁰.

    Returns:
        outputs (T, B, N), y_t, zero beyond the lengths, and y, c, n and m (B, N) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(projected.dtype, weight_hh, hidden, cell, normalizer, scale)
    has_kernel = OPERATOR.has_kernel(projected)
    run = OPERATOR if has_kernel else naive.slstm
    outputs, hidden, cell, normalizer, scale = run(
        projected, weight_hh, hidden, cell, normalizer, scale, lengths, starts
    )
    return outputs, hidden, cell, normalizer, scale
