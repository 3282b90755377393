"""A constant diagonal state space for each channel, with complex states (S4D).

h_{t,c} = λ_c ⊙ h_{t−1,c} + x_{t,c}                            P complex numbers
y_{t,c} = Σ_p Re(w_{c,p} h_{t,c,p})
"""

from torch import Tensor

from gyral.ops.channel_scan import naive
from gyral.ops.operator import Operator, check_dtypes

__all__ = ["channel_scan"]

OPERATOR = Operator(naive.channel_scan, {"cpu": "gyral.ops.channel_scan.cpu"})


def channel_scan(
    x: Tensor,
    decay: Tensor,
    readout: Tensor,
    h0: Tensor,
    *,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    T steps, B batch size, N channels, P complex numbers in the state of a channel. Complex numbers are pairs of real
    and imaginary part, in a dimension of size 2. A kernel keeps the state before every 32nd step for its backward pass,
    and computes the others again.

    Args:
        x: (T, B, N).
        decay: λ, (2, N, P).
        readout: w, (2, N, P).
        h0: (B, 2, N, P), the state before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} counts as zero.

    Returns:
        outputs (T, B, N), y_t, zero beyond the lengths, and the state (B, 2, N, P) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(x.dtype, decay, readout, h0)
    has_kernel = OPERATOR.has_kernel(x)
    outputs, final = (OPERATOR if has_kernel else naive.channel_scan)(x, decay, readout, h0, lengths, starts)
    return outputs, final
