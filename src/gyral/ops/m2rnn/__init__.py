"""M²RNN (2026, arXiv 2603.14360): a memory matrix with a nonlinear recurrence.

S_t = f_t S_{t−1} + (1 − f_t) tanh(S_{t−1} W + k_t v_tᵀ),  y_t = S_tᵀ q_t
"""

import math

from torch import Tensor

from gyral.ops.autograd import outside_autocast
from gyral.ops.m2rnn import naive
from gyral.ops.operator import Operator, check_dtypes

__all__ = ["m2rnn"]

OPERATOR = Operator(naive.m2rnn, {"cpu": "gyral.ops.m2rnn.cpu"})


def m2rnn(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    forget: Tensor,
    weight: Tensor,
    s0: Tensor,
    *,
    clip: float | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    T steps, B batch size, H heads, K and V the sizes of keys and values. The G heads of q and k are H, or 1 if all
    heads share them.

    Args:
        q, k: (T, B, G, K).
        v: (T, B, H, V).
        forget: (T, B, H), f_t in [0, 1].
        weight: (H, V, V), W of each head.
        s0: (B, H, K, V), the memory before the first step.
        clip: Number > 0. The gradient of the memory after each step is cut to [−clip, clip]. None: it is not.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: S_{t−1} counts as zero.

    Returns:
        outputs (T, B, H, V), y_t, zero beyond the lengths, and the memory (B, H, K, V) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(q.dtype, k, v, forget, weight, s0)
    has_kernel = OPERATOR.has_kernel(q)
    bound = math.inf if clip is None else float(clip)
    with outside_autocast(q.device):
        outputs, final = (OPERATOR if has_kernel else naive.m2rnn)(q, k, v, forget, weight, s0, bound, lengths, starts)
    return outputs, final
