"""Recurrences whose step is one matrix product and functions of single rows, over a whole sequence.

A step computes P_t + h_{t−1} Wᵀ, with P_t = W_ih x_t + b, and then the functions of the kind. `naive` has the equations
of each kind in plain torch.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.ops.gated import naive
from gyral.ops.gated.naive import join_biases
from gyral.ops.native.kernels import like
from gyral.ops.operator import Operator, cast_for_autocast
from gyral.ops.projected import ProjectedKernels, rows
from gyral.ops.sequences import recurrent_gradient, split_keep

__all__ = ["KINDS", "gated", "has_kernel", "unsupported_reason"]

KINDS = tuple(naive.EQUATIONS)  # in the order of gated.hpp
# Kinds whose last N columns of the product are not only added to the last columns of P_t; backward needs them.
KEEPS_PRODUCT = ("goru", "normalized_goru", "gru")


def sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes, and what it makes of zoneout and resets."""
    (steps, batch, _), hidden_size = a.x.shape, a.h0.shape[1]
    (keep, keep_mean), (keep_cell_state, keep_cell_state_mean) = split_keep(a.keep), split_keep(a.keep_cell_state)
    resets_to_zero = a.starts is not None and a.fresh is None
    return {
        "steps": steps,
        "batch": batch,
        "hidden_size": hidden_size,
        "cell_state_size": 0 if a.c0 is None else a.c0.shape[1],
        "parts_size": a.w_ih.shape[0],
        "weight_rows": (a.w_hh if a.partner is None else a.w_ih).shape[0],
        "kept_size": a.units if a.kind in KEEPS_PRODUCT else 0,
        "extra_size": 0 if a.extra is None else a.extra.numel(),
        "kind": KINDS.index(a.kind),
        "lag": 1,
        "past": None,  # the results
        "past_cell_states": None,
        "layers": 0 if a.partner is None else len(a.partner),
        "keep_mean": keep_mean,
        "keep_cell_state_mean": keep_cell_state_mean,
        "keep": keep,
        "keep_cell_state": keep_cell_state,
        "fresh": a.h0.new_zeros(hidden_size) if resets_to_zero else a.fresh,
        "fresh_cell_state": None if a.starts is None or a.c0 is None else a.c0.new_zeros(a.c0.shape[1]),
    }


def joined(a: Any) -> Any:
    """Return the arguments with one bias before the steps."""
    b, extra = join_biases(a.kind, a.b, a.b_hh, a.extra, a.units)
    return a._replace(b=b, extra=extra)


class GatedKernels(ProjectedKernels):
    """The kernels, which take one bias, and the gradients of the other one and of dense recurrent weights."""

    def _run(self, a: Any, results: list[Any], kept: list[Any]) -> None:
        super()._run(joined(a), results, kept)

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        found = super().backward(joined(a), results, kept, gradients, needs)
        parts, _, product = kept
        if a.partner is None:
            # the gradient of the product equals the gradient of the parts, except in the kept part
            reads = a.h0, results[0], a.starts, a.drop, a.fresh
            added = len(a.w_hh) - (0 if product is None else a.units)
            found["w_hh"] = recurrent_gradient(parts[..., :added], *reads)
            if product is not None:
                found["w_hh"] = torch.cat((found["w_hh"], recurrent_gradient(product, *reads)))
        if a.b_hh is not None:
            bias = found["b"]
            found["b_hh"] = torch.cat((bias[: -a.units], found["extra"])) if a.kind == "gru" else bias.clone()
        return found


def rotations_gradient(a: Any) -> Tensor | None:
    """Return zeros for the gradients of plane rotations, one sum for each block of rows; None for dense weights."""
    return None if a.partner is None else a.w_hh.new_zeros(KERNELS.kernel.blocks(len(a.h0)), *a.w_hh.shape)


KERNELS = GatedKernels(
    Path(__file__).with_name("gated.cpp"),
    sizes=sizes,
    results={
        "outputs": lambda a: rows(a, a.h0.shape[1]),
        "final_hidden": like("h0"),
        "final_cell_state": like("c0"),
    },
    kept={
        "cell_states": lambda a: None if a.c0 is None else rows(a, a.c0.shape[1]),
        "kept": lambda a: rows(a, a.units) if a.kind in KEEPS_PRODUCT else None,
    },
    states={"h0": "final_hidden", "c0": "final_cell_state"},
    gradients={"w_hh": rotations_gradient},
    sums=("extra", "fresh"),
)
OPERATOR = Operator(naive.gated, {"cpu": KERNELS})
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
