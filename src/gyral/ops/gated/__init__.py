"""Recurrences whose step is one matrix product and functions of single rows, over a whole sequence.

A step computes P_t + h_{t−1} Wᵀ, with P_t = W_ih x_t + b, and then the functions of the kind. `gated` runs the kernels
of `cpu`, which is imported on first use. `naive` has the equations of each kind in plain torch.
"""

from torch import Tensor

from gyral.ops.gated import naive
from gyral.ops.operator import Operator, cast_for_autocast

__all__ = ["KINDS", "gated", "has_kernel", "unsupported_reason"]

KINDS = tuple(naive.EQUATIONS)  # in the order of gated.hpp
OPERATOR = Operator(naive.gated, {"cpu": "gyral.ops.gated.cpu"})
has_kernel, unsupported_reason = OPERATOR.has_kernel, OPERATOR.unsupported_reason


def gated(
    kind: str,
    x: Tensor,
    w_ih: Tensor,
    b: Tensor | None,
    w_hh: Tensor,
    extra: Tensor | None,
    h0: Tensor,
    c0: Tensor | None = None,
    *,
    keep: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    units: int,
    chunk: int = 1,
    keep_cell_state: Tensor | None = None,
    drop: Tensor | None = None,
    fresh: Tensor | None = None,
    epsilon: float = 1e-5,
    partner: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Run a recurrence over inputs (T, B, X), under autocast in the dtype of the parameters.

    T steps, B batch size, H width of the hidden vector, C width of the cell state, N units, G width of P_t.

    Args:
        kind: One of `KINDS`.
        x: (T, B, X).
        w_ih, b: W_ih (G, X), and b (G,) or None.
        w_hh: W (R, H) with R ≤ G: the product is added to the first R columns of P_t. With `partner`: own and other
            (2, L, H) of L ≥ 1 layers of plane rotations whose product is W; complex numbers have real parts before
            imaginary parts.
        extra: Further parameters or None: the biases of modReLU (N,); gain and bias of a normalization (2, N); for
            normalized_lstm (10N,) the concatenation of gains (4N) and biases (4N) of the gates, gain (N) and bias (N)
            of c; for normalized_goru (5N,) that of the biases of modReLU (N), gains (2N) and biases (2N) of the gates;
            for gru the bias (N,) of the recurrent product in the candidate, unless there is `b_hh`.
        h0, c0: (B, H) and (B, C) before the first step; `c0` is None without a cell state.
        keep: Zoneout of the hidden vector: a mask (T, B, H) in training, the probability () in evaluation, or None.
        lengths: (B,) int64 in [1, T], or None if every sequence has T steps. Steps beyond the length of a sequence do
            not change its state, and their outputs are zero.
        starts: (T, B) bool, or None. True resets the row to `fresh`, with a cell state of zeros, before the step.
        units: N.
        chunk: Number of units that share an entry of a master gate, for on_lstm.
        keep_cell_state: Zoneout of the cell state (T, B, C), as `keep`, only for LSTMs.
        drop: Recurrent dropout: factors (B, H) of the hidden vector in the product, or None.
        fresh: (H,), or None stands for zeros.
        epsilon: What layer normalization adds to the variance.
        partner: (L, N) int64, see `gyral.ops.unitary.Rotations`, for the two kinds of modReLU; None for a dense W.
        b_hh: (G,), the bias of the recurrent product of gru, lstm or rnn, or None, also where `b` is None.

    Returns:
        outputs (T, B, H), and hidden vector (B, H) and cell state (B, C) or None after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        TypeError: Inputs or states have another dtype than the parameters, outside autocast.
    """
    x, h0, c0 = cast_for_autocast(w_hh.dtype, x, h0, c0)
    fresh = None if starts is None else fresh
    outputs, hidden, cell_state = OPERATOR.run(
        *(kind, x, w_ih, b, w_hh, extra, h0, c0, fresh, keep, keep_cell_state, drop, lengths, starts, partner),
        *(units, chunk, epsilon, b_hh),
    )
    return outputs, hidden, cell_state
