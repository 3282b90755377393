"""The kernels. A program runs some heads of rows through all steps, a tile of steps at once; registers carry the state.

Two steps m ← max(s + m, i) and then m ← max(s′ + m, i′) are one, m ← max(s′ + s + m, max(s′ + i, i′)), so that a
parallel scan gives all stabilizers. Each step of a tile reads the logits of the step before, whose stabilizer it needs.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.stabilized_gates.naive import LARGEST, NEVER
from gyral.ops.triton.exponentials import softplus
from gyral.ops.triton.rows import sigmoid
from gyral.ops.triton.scan import last_row, scan_tile
from gyral.ops.triton.sequences import load_lengths, load_starts

BLOCK = tl.constexpr(4)  # columns of a program: there are few, B H
BLOCK_STEPS = tl.constexpr(128)  # steps of a tile

_NEVER, _LARGEST, _ALL = tl.constexpr(NEVER), tl.constexpr(LARGEST), tl.constexpr(tl.PropagateNan.ALL)


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    heads: int  # H
    scale: float


class Columns(NamedTuple):
    """Values inside a kernel: columns (K,) of a program, a head of a row each."""

    at: Any  # offsets in (B, H)
    row: Any
    head: Any
    here: Any  # whether they exist
    length: Any


@triton.jit
def _columns(lengths, steps, rows, config: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, here = at // config.heads, at < rows.to(tl.int64) * config.heads
    return Columns(at, row, at % config.heads, here, load_lengths(lengths, row, here, steps))


@triton.jit
def _logits(gates, t, columns, steps, rows, config: tl.constexpr):
    """Return i, f and log σ(f) (S, K) at steps t (S,); logits beyond the lengths are 0."""
    mask = ((t >= 0) & (t < steps))[:, None] & columns.here[None, :] & (t[:, None] < columns.length[None, :])
    place = t.to(tl.int64)[:, None] * rows + columns.row[None, :]
    at = gates + (place * (2 * config.heads) + columns.head[None, :])
    forget = tl.load(at + config.heads, mask=mask, other=0.0)
    return tl.load(at, mask=mask, other=0.0), forget, -softplus(-forget)


@triton.jit
def _smallest_divisor(m):
    """Return e^{−m}, at most e⁸⁰."""
    return tl.exp(tl.minimum(-m, _LARGEST, propagate_nan=_ALL))


@triton.jit
def _starts(starts, t, columns, steps, rows):
    """Return whether there is a start at steps t (S,) before the end: (S, K), int1."""
    return load_starts(starts, t, columns.row, rows, ((t >= 0) & (t < steps))[:, None] & columns.here[None, :])


@triton.jit
def _compose(s1, m1, marks1, s2, m2, marks2):
    later = tl.maximum(s2 + m1, m2, propagate_nan=_ALL)
    return s1 + s2, tl.where(marks2 != 0, m2, later), marks1 | marks2


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_gates(gates, first, lengths, starts, decay, write, least, stabilizers, steps, rows, config: tl.constexpr):
    """Write the results of `gyral.ops.stabilized_gates.stabilized_gates`, (T, B, H) each.

    Args:
        gates, first: See there.
        lengths, starts: See `gyral.ops.triton.sequences`.
    """
    columns = _columns(lengths, steps, rows, config)
    m0 = tl.load(first + columns.at, mask=columns.here, other=0.0)
    m = m0
    for begin in range(0, steps, BLOCK_STEPS):
        t = begin + tl.arange(0, BLOCK_STEPS)
        is_first = (t == 0)[:, None]
        i, _, s = _logits(gates, t - 1, columns, steps, rows, config)
        i, s = tl.where(is_first, m0[None, :], i), tl.where(is_first, 0.0, s)
        marks = (_starts(starts, t - 1, columns, steps, rows) | is_first).to(tl.int32)
        s, before, marks = tl.associative_scan((s, i, marks), 0, _compose)
        before = tl.where(marks != 0, before, tl.maximum(s + m[None, :], before, propagate_nan=_ALL))
        m = last_row(before, BLOCK_STEPS)
        i, _, f = _logits(gates, t, columns, steps, rows, config)
        before = tl.where(_starts(starts, t, columns, steps, rows), _NEVER, before)
        now = tl.maximum(f + before, i, propagate_nan=_ALL)
        at = t.to(tl.int64)[:, None] * rows * config.heads + columns.at[None, :]
        mask = (t < steps)[:, None] & columns.here[None, :]
        valid = t[:, None] < columns.length[None, :]
        kept = tl.where(before <= _NEVER / 2, 0.0, f + before - now)
        tl.store(decay + at, tl.where(valid, kept, 0.0), mask=mask)
        tl.store(write + at, tl.where(valid, tl.exp(i - now) * config.scale, 0.0), mask=mask)
        tl.store(least + at, tl.where(valid, _smallest_divisor(now), 0.0), mask=mask)
        tl.store(stabilizers + at, tl.where(valid, now, 0.0), mask=mask)


@triton.jit
def _load(tensor, at, mask):
    """Return numbers, or zeros for None."""
    none = tl.zeros(mask.shape, tl.float32)
    return none if tensor is None else tl.load(tensor + at, mask=mask, other=0.0)


@triton.jit
def _forgets(gates, m0, starts, stabilizers, grad_decay, t, columns, steps, rows, config: tl.constexpr):
    """Return of steps t (S,): i, f, m_t, the share of m_t that is from m_{t−1}, and the gradient of log σ(f) + m_{t−1}
    in the decay, (S, K) each. Both are zero where there is no m_{t−1}."""
    i, forget, f = _logits(gates, t, columns, steps, rows, config)
    mask = ((t >= 0) & (t < steps))[:, None] & columns.here[None, :] & (t[:, None] < columns.length[None, :])
    size: tl.constexpr = config.heads
    at = t.to(tl.int64)[:, None] * rows * size + columns.at[None, :]
    before = tl.load(stabilizers + (at - rows.to(tl.int64) * size), mask=mask & (t > 0)[:, None], other=0.0)
    before = tl.where((t == 0)[:, None], m0[None, :], before)
    restarts = _starts(starts, t, columns, steps, rows)
    before = tl.where(restarts, _NEVER, before)
    kept = f + before
    share = tl.where(kept > i, 1.0, tl.where(kept == i, 0.5, 0.0))
    share = tl.where(restarts | (mask == 0), 0.0, share)
    d = tl.where((before <= _NEVER / 2) | restarts, 0.0, _load(grad_decay, at, mask))
    return i, forget, tl.load(stabilizers + at, mask=mask, other=0.0), share, d


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_gates(
    gates,
    first,
    lengths,
    starts,
    stabilizers,
    grad_decay,
    grad_write,
    grad_least,
    grad_stabilizers,
    grad_gates,
    grad_first,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients. That of m_t is a linear recurrence, from the last step to the first.

    The step after t = −1 is the first one, so that the gradient of m_{−1} is that of `first`. The gradients of the
    results may be None.
    """
    columns = _columns(lengths, steps, rows, config)
    m0 = tl.load(first + columns.at, mask=columns.here, other=0.0)
    g = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, steps + 1, BLOCK_STEPS):
        t = steps - 1 - begin - tl.arange(0, BLOCK_STEPS)
        mask = (t >= 0)[:, None] & columns.here[None, :]
        at = t.to(tl.int64)[:, None] * rows * config.heads + columns.at[None, :]
        _, _, _, following, passed = _forgets(
            gates, m0, starts, stabilizers, grad_decay, t + 1, columns, steps, rows, config
        )
        i, forget, m, share, d = _forgets(gates, m0, starts, stabilizers, grad_decay, t, columns, steps, rows, config)
        valid = mask & (t[:, None] < columns.length[None, :])
        written = _load(grad_write, at, valid) * tl.exp(i - m) * config.scale
        divided = tl.where(-m > _LARGEST, 0.0, _load(grad_least, at, valid) * _smallest_divisor(m))
        b = _load(grad_stabilizers, at, valid) - d - written - divided + passed
        total, _ = scan_tile(following, following, b, b, (following == 0.0).to(tl.int32), g, g, False)
        g = last_row(total, BLOCK_STEPS)
        # a share of zero passes nothing, not even NaN
        kept = tl.where(share == 0.0, 0.0, share * total)
        d_write = written + tl.where(share == 1.0, 0.0, (1.0 - share) * total)
        place = t.to(tl.int64)[:, None] * rows + columns.row[None, :]
        to = grad_gates + (place * (2 * config.heads) + columns.head[None, :])
        tl.store(to, tl.where(valid, d_write, 0.0), mask=mask)
        tl.store(to + config.heads, tl.where(valid, (d + kept) * sigmoid(-forget), 0.0), mask=mask)
        is_first = (t == -1)[:, None] & columns.here[None, :]
        tl.store(grad_first + (columns.at[None, :] + tl.zeros(at.shape, tl.int64)), total, mask=is_first)
