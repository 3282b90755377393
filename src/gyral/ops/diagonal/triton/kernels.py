"""The kernels. A program runs some channels of all steps, a tile of steps at once, and carries the state in registers.

The N channels of B rows do not depend on each other, and are taken as B N channels in a row: so no lane is idle for any
N. The backward pass reads h_{t−1} from the outputs; nothing else is saved. A step beyond the length of its row has a = 1
and b = 0, so that the state at the end is that after the last step.
"""

import triton
import triton.language as tl

from gyral.ops.diagonal.triton.coefficients import Config, Tile, coefficients, gated_gradients
from gyral.ops.triton.scan import last_row, scan_tile
from gyral.ops.triton.sequences import load_lengths, load_starts


@triton.jit
def _channels(rows, config: tl.constexpr, block: tl.constexpr):
    """Return the rows and units (K,) of the channels of this program, and whether they exist."""
    channel = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    row = channel // config.size
    return row, channel % config.size, row < rows


@triton.jit
def _tile(t, row, unit, fresh, started, valid, steps, rows, config: tl.constexpr):
    """Return where the numbers of the steps t (S,) are, which are valid, and which are first in a segment."""
    place = t.to(tl.int64)[:, None] * rows + row[None, :]
    is_first = started
    if fresh is not None:
        begins = tl.load(fresh + row, mask=row < rows, other=0) > 0
        is_first = is_first | ((t == 0)[:, None] & begins[None, :])
    second = config.size
    if config.kind == "rg_lru":
        second = steps.to(tl.int64) * rows * config.size
    gates = place * config.gates_width + config.gates_at + unit[None, :]
    return Tile(place * config.values_width + unit[None, :], gates, second, unit, is_first, valid)


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
    steps,
    rows,
    config: tl.constexpr,
    block: tl.constexpr,
    block_steps: tl.constexpr,
):
    """Write the outputs (T, B, W), and the state after the last step (B, W); W is 2N for complex numbers, else N.

    Args:
        values: (T, B, …), what b_t is made of; for `diagonal_scan` b_t.
        gates: (T, B, …), or (2, T, B, N) for `rg_lru`, what a_t is made of, or None.
        constants: (W,), a constant decay, or that of `rg_lru`, or None.
        bias: (2, N), of the gates of `rg_lru`, or None.
        h0: (B, W), the state before the first step.
        fresh: (B,), positive where the first step is the first of its segment, for `rg_lru`, or None.
        lengths, starts: See `gyral.ops.triton.sequences`.
    """
    row, unit, here = _channels(rows, config, block)
    width: tl.constexpr = 2 * config.size if config.is_complex else config.size
    at = row * width + unit
    h = tl.load(h0 + at, mask=here, other=0.0)
    hi = h
    if config.is_complex:
        hi = tl.load(h0 + at + config.size, mask=here, other=0.0)
    length = load_lengths(lengths, row, here, steps)
    for first in range(0, steps, block_steps):
        t = first + tl.arange(0, block_steps)
        exists = (t < steps)[:, None] & here[None, :]
        valid = exists & (t[:, None] < length[None, :])
        started = load_starts(starts, t, row, rows, valid)
        tile = _tile(t, row, unit, fresh, started, valid, steps, rows, config)
        a, ai, b, bi = coefficients(values, gates, constants, bias, tile, config)
        marks = None if starts is None else started.to(tl.int32)
        y, yi = scan_tile(a, ai, b, bi, marks, h, hi, config.is_complex)
        output = outputs + (t.to(tl.int64)[:, None] * rows * width + at[None, :])
        tl.store(output, tl.where(valid, y, 0.0), mask=exists)
        h = last_row(y, block_steps)
        if config.is_complex:
            tl.store(output + config.size, tl.where(valid, yi, 0.0), mask=exists)
            hi = last_row(yi, block_steps)
    tl.store(final + at, h, mask=here)
    if config.is_complex:
        tl.store(final + at + config.size, hi, mask=here)


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
    block: tl.constexpr,
    block_steps: tl.constexpr,
):
    """Write all gradients; those of constants and bias as sums over the steps of each row, (B, sums, N).

    The gradient of h_t is d_t = dy_t + conj(a_{t+1}) d_{t+1}: the same scan, from the last step to the first.
    `grad_outputs` and `grad_final` may be None.
    """
    row, unit, here = _channels(rows, config, block)
    width: tl.constexpr = 2 * config.size if config.is_complex else config.size
    at = row * width + unit
    h = tl.load(h0 + at, mask=here, other=0.0)
    g = tl.zeros([block], tl.float32)
    hi, gi, sum0, sum1, sum2 = h, g, g, g, g
    if grad_final is not None:
        g = tl.load(grad_final + at, mask=here, other=0.0)
    if config.is_complex:
        hi = tl.load(h0 + at + config.size, mask=here, other=0.0)
        if grad_final is not None:
            gi = tl.load(grad_final + at + config.size, mask=here, other=0.0)
    length = load_lengths(lengths, row, here, steps)
    # the step after t = −1 is the first one, so that d_{−1} is the gradient of the state before it
    for first in range(0, steps + 1, block_steps):
        t = steps - 1 - first - tl.arange(0, block_steps)
        exists = (t >= 0)[:, None] & here[None, :]
        valid = exists & (t[:, None] < length[None, :])
        follows = (t >= -1)[:, None] & here[None, :] & (t[:, None] + 1 < length[None, :])
        restarts = load_starts(starts, t + 1, row, rows, follows)
        following = _tile(t + 1, row, unit, fresh, restarts, follows, steps, rows, config)
        a, ai, _, _ = coefficients(values, gates, constants, bias, following, config)
        output = t.to(tl.int64)[:, None] * rows * width + at[None, :]
        dy = tl.zeros([block_steps, block], tl.float32)
        dyi = dy
        if grad_outputs is not None:
            dy = tl.load(grad_outputs + output, mask=valid, other=0.0)
            if config.is_complex:
                dyi = tl.load(grad_outputs + output + config.size, mask=valid, other=0.0)
        marks = None if starts is None else restarts.to(tl.int32)
        d, di = scan_tile(a, -ai, dy, dyi, marks, g, gi, config.is_complex)
        g = last_row(d, block_steps)
        d = tl.where(valid, d, 0.0)

        started = load_starts(starts, t, row, rows, valid)
        tile = _tile(t, row, unit, fresh, started, valid, steps, rows, config)
        previous = output - rows.to(tl.int64) * width
        has_output = valid & (t > 0)[:, None]
        before = tl.load(outputs + previous, mask=has_output, other=0.0)
        before = tl.where(started, 0.0, tl.where((t == 0)[:, None], h[None, :], before))
        d_value, d_first, d_second = d, before * d, d
        if config.is_complex:
            gi = last_row(di, block_steps)
            di = tl.where(valid, di, 0.0)
            beforei = tl.load(outputs + previous + config.size, mask=has_output, other=0.0)
            beforei = tl.where(started, 0.0, tl.where((t == 0)[:, None], hi[None, :], beforei))
            d_first += beforei * di
            d_second = before * di - beforei * d
            tl.store(grad_values + tile.values + config.size, di, mask=exists)
        if config.kind == "constant":
            sum0 += tl.sum(d_first, axis=0)
            sum1 += tl.sum(d_second, axis=0)
        elif config.kind != "decay":
            d_value, d_first, d_second, d_decay = gated_gradients(
                values, gates, constants, bias, tile, d, before, config
            )
            if config.kind == "rg_lru":
                sum0 += tl.sum(d_decay, axis=0)
                sum1 += tl.sum(d_first, axis=0)
                sum2 += tl.sum(d_second, axis=0)
        tl.store(grad_values + tile.values, d_value, mask=exists)
        if config.gates_width > 0:
            tl.store(grad_gates + tile.gates, d_first, mask=exists)
            if config.is_complex or config.kind == "min_lstm" or config.kind == "rg_lru":
                tl.store(grad_gates + tile.gates + tile.second, d_second, mask=exists)

    tl.store(grad_h0 + at, g, mask=here)
    if config.is_complex:
        tl.store(grad_h0 + at + config.size, gi, mask=here)
    if config.sums > 0:
        sums = grad_sums + row * (config.sums * config.size) + unit
        tl.store(sums, sum0, mask=here)
        if config.sums > 1:
            tl.store(sums + config.size, sum1, mask=here)
        if config.sums > 2:
            tl.store(sums + 2 * config.size, sum2, mask=here)
