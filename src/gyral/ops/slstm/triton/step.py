"""The equations of a step and of its derivative, for any number of units at once."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.exponentials import softplus
from gyral.ops.triton.rows import sigmoid, tanh

_ALL = tl.constexpr(tl.PropagateNan.ALL)


class Gates(NamedTuple):
    """Sums of i, f, z, o of some units, or their gradients; or recurrent weights of these gates."""

    write: Any
    forget: Any
    candidate: Any
    output: Any


class State(NamedTuple):
    """c, n and m of some units, or their gradients."""

    cell: Any
    normalizer: Any
    scale: Any


@triton.jit
def reset(state, started, lowest: tl.constexpr):
    """Return the state before a step: the initial one, whose m is `lowest`, if the row is reset."""
    return State(
        tl.where(started, 0.0, state.cell),
        tl.where(started, 0.0, state.normalizer),
        tl.where(started, lowest, state.scale),
    )


@triton.jit
def advance(sums, state):
    """Return y and the state after a step, given the state before it."""
    kept = state.scale - softplus(-sums.forget)
    scale = tl.maximum(kept, sums.write, propagate_nan=_ALL)
    kept, write = tl.exp(kept - scale), tl.exp(sums.write - scale)
    cell = kept * state.cell + write * tanh(sums.candidate)
    normalizer = kept * state.normalizer + write
    return sigmoid(sums.output) * cell / normalizer, State(cell, normalizer, scale)


@triton.jit
def advance_backward(sums, before, after, dh, d):
    """Return the gradients of the sums and of the state before a step, given those of y, and `d`, of the state."""
    candidate, output = tanh(sums.candidate), sigmoid(sums.output)
    kept = before.scale - softplus(-sums.forget)
    # share of the maximum's gradient
    is_kept = tl.where(kept > sums.write, 1.0, tl.where(kept == sums.write, 0.5, 0.0))
    f, i = tl.exp(kept - after.scale), tl.exp(sums.write - after.scale)
    y = after.cell / after.normalizer
    scaled = dh * output / after.normalizer
    dc, dn = d.cell + scaled, d.normalizer - scaled * y
    of_kept = (dc * before.cell + dn * before.normalizer) * f
    of_write = (dc * candidate + dn) * i
    dm = (1.0 - is_kept) * of_kept + is_kept * (d.scale - of_write)
    gradients = Gates(
        is_kept * of_write + (1.0 - is_kept) * (d.scale - of_kept),
        dm * sigmoid(-sums.forget),
        dc * i * (1.0 - candidate * candidate),
        dh * y * output * (1.0 - output),
    )
    return gradients, State(dc * f, dn * f, dm)
