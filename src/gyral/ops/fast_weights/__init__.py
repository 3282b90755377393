"""Recurrences whose state is a hidden vector h and a matrix A: fast weights and WeiNet, over a whole sequence.

`gyral.cells.fast_weights` and `gyral.cells.weinet` have the equations. `fast_weights` runs the kernels of `cpu`, which
is imported on first use; `naive` computes the same step by step in plain torch.
"""

from torch import Tensor

from gyral.ops.fast_weights import naive
from gyral.ops.operator import Operator, cast_for_autocast, has_gradient

__all__ = ["KINDS", "fast_weights", "unsupported_reason"]

KINDS = ("relu", "tanh", "weinet")  # in the order of fast_weights.cpp: fast weights by their activation, and WeiNet
OPERATOR = Operator(naive.fast_weights, {"cpu": "gyral.ops.fast_weights.cpu"})
unsupported_reason = OPERATOR.unsupported_reason


def fast_weights(
    kind: str,
    x: Tensor,
    w_ih: Tensor,
    b: Tensor,
    w_hh: Tensor,
    norm: Tensor | None,
    h0: Tensor,
    a0: Tensor,
    *,
    keep: Tensor | None = None,
    drop: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    epsilon: float = 1e-5,
    decay: float = 0.0,
    rate: float = 0.0,
    inner_steps: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run a recurrence over a sequence, under autocast in the dtype of the parameters.

    T steps, B batch size, X inputs, N units, G = N for fast weights and 7N for WeiNet.

    Args:
        kind: One of `KINDS`.
        x: (T, B, X).
        w_ih, b: (G, X) and (G,).
        w_hh: (N, N), for WeiNet (4N, N).
        norm: Gain and bias (2, N) of the layer normalization; None for WeiNet without it.
        h0, a0: (B, N) and (B, N, N) before the first step.
        keep: Zoneout: a mask (T, B, N) in training, the probability () in evaluation, or None.
        drop: Recurrent dropout: factors (B, N) of the hidden vector in the product with W_hh, or None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets h and A of a row to zero before the step.
        epsilon: What layer normalization adds to the variance.
        decay, rate, inner_steps: λ, η and S of fast weights.

    Returns:
        outputs (T, B, N), and h (B, N) and A (B, N, N) after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    x, h0, a0 = cast_for_autocast(w_hh.dtype, x, h0, a0)
    given = x, w_ih, b, w_hh, norm, h0, a0
    outputs, hidden, memory = OPERATOR.run(
        *(kind, *given, keep, drop, lengths, starts, epsilon, decay, rate, inner_steps, has_gradient(*given))
    )
    return outputs, hidden, memory
