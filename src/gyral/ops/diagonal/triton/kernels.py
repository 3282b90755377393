"""The kernels. A program runs some channels through all steps, a tile of steps at once; registers carry the state.

The N channels of B rows do not depend on each other, and are B N channels in a row: no lane is idle, whatever N is. The
backward pass reads h_{t−1} from the outputs; nothing else is saved. Steps beyond the length of a row have a = 1 and
b = 0, so that the state at the end is that after its last step.
"""

import triton
import triton.language as tl

from gyral.ops.diagonal.triton.coefficients import Tile, coefficients, gated_gradients
from gyral.ops.triton.scan import last_row, load_pair, scan_tile, store_pair
from gyral.ops.triton.sequences import load_lengths, load_starts

BLOCK = tl.constexpr(8)  # channels of a program: 32 bytes are read at once, and a small batch has many programs
BLOCK_STEPS = tl.constexpr(128)  # steps of a tile


@triton.jit
def channels(rows, size: tl.constexpr, width: tl.constexpr):
    """Return the rows and units (K,) of the channels of this program, whether they exist, and their offsets in (B, W).

    W = `width` is 2N for N = `size` complex numbers, else N.
    """
    channel = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, unit = channel // size, channel % size
    return row, unit, row < rows, row * width + unit


@triton.jit
def _tile(t, row, unit, fresh, started, valid, rows, config: tl.constexpr):
    """Return where the numbers of the steps t (S,) are."""
    place = t.to(tl.int64)[:, None] * rows + row[None, :]
    if fresh is not None:
        begins = tl.load(fresh + row, mask=row < rows, other=0) > 0
        started = started | ((t == 0)[:, None] & begins[None, :])
    unit = unit[None, :]
    gate_at = place * config.gates_width + config.gates_at + unit
    if config.block < config.size:
        gate_at += unit // config.block * config.block  # those of the other gate, between blocks
    return Tile(place * config.values_width + unit, gate_at, unit, started, valid)


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_scan(
    values,
    gates,
    constants,
    bias,
    h0,
    fresh,
    lengths,
    starts,
    outputs,
    final,
    later,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the outputs (T, B, W), and the state after the last step (B, W).

    Args:
        values: (T, B, …), what b_t is made of; for `diagonal_scan` b_t.
        gates: (T, B, …), what a_t is made of, or None; two gates in blocks of units, those of the first before those of
            the second one.
        constants, bias: (W,), a constant decay, or Λ of `rg_lru`, and (2, N), its biases; None for other kinds.
        h0: (B, W), the state before the first step.
        fresh, later: (B,), for `rg_lru`, or None: positive where the first step is the first of a sequence, and where
            the same of the step after the last one is written, which is 0.
        lengths, starts: See `gyral.ops.triton.sequences`.
    """
    is_complex: tl.constexpr = config.is_complex
    width: tl.constexpr = 2 * config.size if is_complex else config.size
    row, unit, here, at = channels(rows, config.size, width)
    h, hi = load_pair(h0 + at, config.size, here, is_complex)
    length = load_lengths(lengths, row, here, steps)
    stride = rows.to(tl.int64) * width
    for first in range(0, steps, BLOCK_STEPS):
        t = first + tl.arange(0, BLOCK_STEPS)
        exists = (t < steps)[:, None] & here[None, :]
        valid = exists & (t[:, None] < length[None, :])
        started = load_starts(starts, t, row, rows, valid)
        tile = _tile(t, row, unit, fresh, started, valid, rows, config)
        a, ai, b, bi = coefficients(values, gates, constants, bias, tile, config)
        marks = None if starts is None else started.to(tl.int32)
        y, yi = scan_tile(a, ai, b, bi, marks, h, hi, is_complex)
        h, hi = last_row(y, BLOCK_STEPS), last_row(yi, BLOCK_STEPS)
        y, yi = tl.where(valid, y, 0.0), tl.where(valid, yi, 0.0)
        store_pair(outputs + (t[:, None] * stride + at[None, :]), config.size, y, yi, exists, is_complex)
    store_pair(final + at, config.size, h, hi, here, is_complex)
    if later is not None:
        tl.store(later + row, 0, mask=here & (unit == 0))


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_scan(
    values,
    gates,
    constants,
    bias,
    h0,
    fresh,
    lengths,
    starts,
    outputs,
    grad_outputs,
    grad_final,
    grad_values,
    grad_gates,
    grad_sums,
    grad_h0,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write all gradients; those of constants and bias as sums over the steps of each row, (B, sums, N).

    The gradient of h_t is d_t = dy_t + conj(a_{t+1}) d_{t+1}: the same scan, from the last step to the first. The step
    after t = −1 is the first one, so that d_{−1} is the gradient of h0. `grad_outputs` and `grad_final` may be None.
    """
    is_complex: tl.constexpr = config.is_complex
    width: tl.constexpr = 2 * config.size if is_complex else config.size
    row, unit, here, at = channels(rows, config.size, width)
    h, hi = load_pair(h0 + at, config.size, here, is_complex)
    g = tl.zeros([BLOCK], tl.float32)
    zeros = tl.zeros([BLOCK_STEPS, BLOCK], tl.float32)
    gi, sum0, sum1, sum2 = g, zeros, zeros, zeros
    if grad_final is not None:
        g, gi = load_pair(grad_final + at, config.size, here, is_complex)
    length = load_lengths(lengths, row, here, steps)
    stride = rows.to(tl.int64) * width
    for first in range(0, steps + 1, BLOCK_STEPS):
        t = steps - 1 - first - tl.arange(0, BLOCK_STEPS)
        exists = (t >= 0)[:, None] & here[None, :]
        valid = exists & (t[:, None] < length[None, :])
        follows = (t >= -1)[:, None] & here[None, :] & (t[:, None] + 1 < length[None, :])
        restarts = load_starts(starts, t + 1, row, rows, follows)
        following = _tile(t + 1, row, unit, fresh, restarts, follows, rows, config)
        a, ai, _, _ = coefficients(values, gates, constants, bias, following, config)
        output = t[:, None] * stride + at[None, :]
        dy, dyi = zeros, zeros
        if grad_outputs is not None:
            dy, dyi = load_pair(grad_outputs + output, config.size, valid, is_complex)
        marks = None if starts is None else restarts.to(tl.int32)
        d, di = scan_tile(a, -ai, dy, dyi, marks, g, gi, is_complex)
        g, gi = last_row(d, BLOCK_STEPS), last_row(di, BLOCK_STEPS)
        d, di = tl.where(valid, d, 0.0), tl.where(valid, di, 0.0)

        started = load_starts(starts, t, row, rows, valid)
        tile = _tile(t, row, unit, fresh, started, valid, rows, config)
        is_zero, has_output = (t == 0)[:, None], valid & (t > 0)[:, None]
        before, beforei = load_pair(outputs + (output - stride), config.size, has_output, is_complex)
        before = tl.where(started, 0.0, tl.where(is_zero, h[None, :], before))
        beforei = tl.where(started, 0.0, tl.where(is_zero, hi[None, :], beforei))
        d_value, d_first, d_second = d, before * d, before * di - beforei * d
        if is_complex:
            d_first += beforei * di
        if config.kind == "constant":
            sum0, sum1 = sum0 + d_first, sum1 + d_second
        elif config.kind != "decay":
            d_value, d_first, d_second, d_decay = gated_gradients(
                values, gates, constants, bias, tile, d, before, config
            )
            if config.kind == "rg_lru":
                sum0, sum1, sum2 = sum0 + d_decay, sum1 + d_first, sum2 + d_second
        store_pair(grad_values + tile.value_at, config.size, d_value, di, exists, is_complex)
        if config.gates_width > 0:
            store_pair(grad_gates + tile.gate_at, config.block, d_first, d_second, exists, config.two_gates)

    store_pair(grad_h0 + at, config.size, g, gi, here, is_complex)
    if config.sums > 0:
        sums = grad_sums + (row * (config.sums * config.size) + unit)
        store_pair(sums, config.size, tl.sum(sum0, axis=0), tl.sum(sum1, axis=0), here, config.sums > 1)
        if config.sums > 2:
            tl.store(sums + 2 * config.size, tl.sum(sum2, axis=0), mask=here)
