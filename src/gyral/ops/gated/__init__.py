"""Recurrences whose step is one matrix product and functions of single rows, over a whole sequence.

A step computes P_t + h_{t−1} Wᵀ, with P_t = W_ih x_t + b, and then the functions of the kind. `naive` has the equations
of each kind in plain torch.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product, projection
from gyral.ops.gated import naive
from gyral.ops.gated.naive import join_biases
from gyral.ops.native.kernels import ProjectedKernels, like, rows
from gyral.ops.native.products import recurrent_gradient
from gyral.ops.operator import Operator, cast_for_autocast
from gyral.ops.sequences import split_keep

__all__ = ["KINDS", "gated", "has_kernel", "unsupported_reason"]

KINDS = tuple(naive.EQUATIONS)  # in the order of gated.hpp
# Kinds whose last N columns of the product are not only added to the last columns of P_t; backward needs them.
KEEPS_PRODUCT = ("goru", "normalized_goru", "gru")
# G and the numbers in `extra`, in multiples of N.
GATES = {"modrelu": 1, "complex_modrelu": 2, "rnn_tanh": 1, "rnn_relu": 1, "goru": 3, "normalized_goru": 3, "gru": 3}
EXTRA = {"modrelu": 1, "complex_modrelu": 1, "goru": 1, "normalized_goru": 5, "gru": 1, "normalized_lstm": 10}
NEEDS_EXTRA = EXTRA.keys() - {"gru"}


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, inputs = check_shape("x", a.x, *a.x.shape[:2], "X")
    size, rows = check_weights(a, inputs)
    if a.partner is not None:
        if a.kind not in ("modrelu", "complex_modrelu"):
            raise InputError(f"partner must be None: {a.kind} has dense recurrent weights")
        layers, _ = check_shape("partner", a.partner, "L", a.units)
        if layers == 0:
            raise InputError("partner has no layers, must have at least one")
        check_shape("w_hh", a.w_hh, 2, layers, size)
    else:
        check_shape("w_hh", a.w_hh, rows, size)
    check_shape("h0", a.h0, batch, size)
    check_shape("fresh", a.fresh, size)
    check_shape("drop", a.drop, batch, size)
    check_zoneout("keep", a.keep, steps, batch, size)
    check_zoneout("keep_cell_state", a.keep_cell_state, steps, batch, a.units)
    if (a.c0 is not None) != ("lstm" in a.kind):
        raise InputError(f"c0 must {'not ' if a.c0 is None else ''}be None for {a.kind}")
    check_shape("c0", a.c0, batch, a.units)
    check_shape("b_hh", a.b_hh, rows)
    if a.b_hh is not None and (a.b is None or (a.kind == "gru" and a.extra is not None)):
        raise InputError("b_hh must be None: it is one of two biases, and in gru takes the place of extra")


def check_weights(a: Any, inputs: int) -> tuple[int, int]:
    """Check options, input weights, bias and extra parameters of a recurrence with X inputs; return H and G."""
    check_choice("kind", a.kind, KINDS)
    units = check_integer("units", a.units)
    check_integer("chunk", a.chunk, maximum=units)
    rows = GATES.get(a.kind, 4) * units + (2 * -(-units // a.chunk) if a.kind == "on_lstm" else 0)
    check_shape("w_ih", a.w_ih, rows, inputs)
    check_shape("b", a.b, rows)
    if a.kind in NEEDS_EXTRA and a.extra is None:
        raise InputError(f"extra is None, must have {EXTRA[a.kind]} · {units} numbers for {a.kind}")
    if a.kind not in EXTRA and a.extra is not None:
        raise InputError(f"extra must be None for {a.kind}")
    check_shape("extra", a.extra, EXTRA.get(a.kind, 0) * units)
    return (2 if a.kind == "complex_modrelu" else 1) * units, rows


def check_zoneout(name: str, keep: Tensor | None, *shape: int) -> None:
    """Check zoneout, a mask or a probability ()."""
    check_shape(name, keep, *(shape if keep is not None and keep.dim() > 0 else ()))


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


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    return projection(a), product(len(a.x) * len(a.h0), a.w_hh) if a.partner is None else 0


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
OPERATOR = Operator(
    naive.gated,
    {"cpu": KERNELS, "cuda": "gyral.ops.gated.triton"},
    shapes=shapes,
    dtypes={"partner": torch.int64},
    limits={"partner": lambda a: a.units},
    products=products,
)
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
        InputError: See `gyral.ops.declaration.Checks`.
    """
    x, h0, c0 = cast_for_autocast(w_hh.dtype, x, h0, c0)
    fresh = None if starts is None else fresh
    outputs, hidden, cell_state = OPERATOR.run(
        *(kind, x, w_ih, b, w_hh, extra, h0, c0, fresh, keep, keep_cell_state, drop, lengths, starts, partner),
        *(units, chunk, epsilon, b_hh),
    )
    return outputs, hidden, cell_state
