"""The kernels. A program computes a tile of steps and columns; a column is a channel of a row.

The C channels of B rows do not depend on each other, and are B C columns: no lane is idle, whatever C is. Nothing is
saved for the backward pass, which computes the sums in SiLU again: a window of K values is in the cache.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.rows import sigmoid
from gyral.ops.triton.sequences import load_lengths, load_starts

BLOCK = tl.constexpr(32)  # columns of a program: 128 bytes are read at once
BLOCK_STEPS = tl.constexpr(32)  # steps of a program


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    channels: int  # C
    kernel: int  # K
    first: int  # channels of the first part of the outputs
    second: int  # and of the second one; the third has the others


class Columns(NamedTuple):
    """Values inside a kernel: columns (K,) of a program."""

    at: Any  # offsets in (B, C)
    row: Any
    unit: Any  # indices of the channels
    here: Any  # whether they exist


@triton.jit
def _columns(rows, config: tl.constexpr):
    """Return the columns of this program, and the index of its tile of steps."""
    count = rows.to(tl.int64) * config.channels
    blocks = (count + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    at = program % blocks * BLOCK + tl.arange(0, BLOCK)
    return Columns(at, at // config.channels, at % config.channels, at < count), program // blocks


@triton.jit
def _values(values, history, t, columns, mask, rows, config: tl.constexpr):
    """Return the values (S, K) at steps t (S,), those before step 0 from the history; zeros beyond the mask."""
    inside, t = (t >= 0)[:, None], t.to(tl.int64)[:, None]
    found = tl.load(values + (t * rows * config.channels + columns.at[None, :]), mask=mask & inside, other=0.0)
    past: tl.constexpr = config.kernel - 1
    before = (columns.row[None, :] * past + past + t) * config.channels + columns.unit[None, :]
    return found + tl.load(history + before, mask=mask & (inside == 0), other=0.0)


@triton.jit
def _sums(values, weight, bias, history, starts, t, columns, mask, rows, config: tl.constexpr):
    """Return the arguments of SiLU (S, K) at steps t (S,), undefined at steps beyond the mask."""
    total = tl.zeros(mask.shape, tl.float32)
    reached = mask
    size: tl.constexpr = config.kernel
    for back in tl.static_range(size):
        each = tl.load(weight + (columns.unit * config.kernel + (config.kernel - 1 - back)))
        total += each[None, :] * _values(values, history, t - back, columns, reached, rows, config)
        if starts is not None:  # a start at a step hides all earlier ones
            inside = reached & (t - back >= 0)[:, None]
            reached = reached & (load_starts(starts, t - back, columns.row, rows, inside) == 0)
    if bias is not None:
        total += tl.load(bias + columns.unit)[None, :]
    return total


@triton.jit
def _part_at(t, columns, rows, before: tl.constexpr, size: tl.constexpr):
    """Return the offsets (S, K) in a part (T, B, size) after `before` channels, and whether they exist."""
    place = (t.to(tl.int64)[:, None] * rows + columns.row[None, :]) * size
    unit = columns.unit[None, :] - before
    return place + unit, (unit >= 0) & (unit < size)


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_convolution(
    values, weight, bias, history, lengths, starts, part1, part2, part3, steps, rows, config: tl.constexpr
):
    """Write the parts (T, B, size) of the outputs, zero beyond the lengths.

    Args:
        values, weight, bias, history: See `gyral.ops.short_convolution.short_convolution`.
        lengths, starts: See `gyral.ops.triton.sequences`.
    """
    columns, tile = _columns(rows, config)
    t = (tile * BLOCK_STEPS).to(tl.int32) + tl.arange(0, BLOCK_STEPS)
    length = load_lengths(lengths, columns.row, columns.here, steps)
    exists = (t < steps)[:, None] & columns.here[None, :]
    valid = exists & (t[:, None] < length[None, :])
    total = _sums(values, weight, bias, history, starts, t, columns, valid, rows, config)
    y = tl.where(valid, total * sigmoid(total), 0.0)
    third: tl.constexpr = config.first + config.second
    if config.first > 0:
        at, here = _part_at(t, columns, rows, 0, config.first)
        tl.store(part1 + at, y, mask=exists & here)
    if config.second > 0:
        at, here = _part_at(t, columns, rows, config.first, config.second)
        tl.store(part2 + at, y, mask=exists & here)
    if config.channels > third:
        at, here = _part_at(t, columns, rows, third, config.channels - third)
        tl.store(part3 + at, y, mask=exists & here)


@triton.jit
def _grad_outputs(grad1, grad2, grad3, t, columns, mask, rows, config: tl.constexpr):
    """Return the gradients (S, K) of the outputs at steps t (S,); zeros beyond the mask, and of parts without one."""
    third: tl.constexpr = config.first + config.second
    found = tl.zeros(mask.shape, tl.float32)
    if grad1 is not None:
        at, here = _part_at(t, columns, rows, 0, config.first)
        found += tl.load(grad1 + at, mask=mask & here, other=0.0)
    if grad2 is not None:
        at, here = _part_at(t, columns, rows, config.first, config.second)
        found += tl.load(grad2 + at, mask=mask & here, other=0.0)
    if grad3 is not None:
        at, here = _part_at(t, columns, rows, third, config.channels - third)
        found += tl.load(grad3 + at, mask=mask & here, other=0.0)
    return found


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_convolution(
    values,
    weight,
    bias,
    history,
    lengths,
    starts,
    grad1,
    grad2,
    grad3,
    grad_values,
    grad_history,
    grad_sums,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write all gradients; those of weight and bias as sums over a tile of steps, (tiles, B, C K + C), C K
    without a bias.

    Step s is in the windows of the steps from s to s + K − 1. Steps before 0 are in the history. `grad1` to `grad3`,
    the gradients of the parts, may be None.
    """
    columns, tile = _columns(rows, config)
    past: tl.constexpr = config.kernel - 1
    s = (tile * BLOCK_STEPS).to(tl.int32) - past + tl.arange(0, BLOCK_STEPS)
    exists = (s < steps)[:, None] & columns.here[None, :]
    length = load_lengths(lengths, columns.row, columns.here, steps)
    value = _values(values, history, s, columns, exists & (s[:, None] < length[None, :]), rows, config)
    d = tl.zeros(exists.shape, tl.float32)
    reaching = exists
    of_weight: tl.constexpr = config.channels * config.kernel
    width: tl.constexpr = of_weight if bias is None else of_weight + config.channels
    sums = grad_sums + (tile * rows + columns.row) * width
    for ahead in range(config.kernel):
        t = s + ahead
        if starts is not None:
            inside = reaching & ((t >= 0) & (t < steps) & (t > s))[:, None]
            reaching = reaching & (load_starts(starts, t, columns.row, rows, inside) == 0)
        valid = reaching & (t >= 0)[:, None] & (t[:, None] < length[None, :])
        total = _sums(values, weight, bias, history, starts, t, columns, valid, rows, config)
        gate = sigmoid(total)
        slope = gate * (1.0 + total * (1.0 - gate))
        dy = _grad_outputs(grad1, grad2, grad3, t, columns, valid, rows, config)
        g = tl.where(valid, dy * slope, 0.0)
        at = columns.unit * config.kernel + (past - ahead)
        d += tl.load(weight + at)[None, :] * g
        tl.store(sums + at, tl.sum(tl.where(valid, g * value, 0.0), axis=0), mask=columns.here)
        if bias is not None:
            is_own = columns.here & (ahead == 0)
            tl.store(sums + (of_weight + columns.unit), tl.sum(g, axis=0), mask=is_own)
    step = s.to(tl.int64)[:, None]
    is_inside = (s >= 0)[:, None]
    to = grad_values + (step * rows * config.channels + columns.at[None, :])
    tl.store(to, d, mask=exists & is_inside)
    before = (columns.row[None, :] * past + past + step) * config.channels + columns.unit[None, :]
    tl.store(grad_history + before, d, mask=exists & (is_inside == 0))
