"""The kernels. A program computes a tile of steps and lanes of one row; a lane is a channel of one of some heads.

A head has C lanes, a power of 2, of which the last ones may be idle: so a sum over the channels of a head is one over
neighbours. The window is a loop, whose values are in the cache: no step reads a value outside its window, which may be
NaN or infinite. The softmax of the scores is computed from their largest one and the sum of exponentials, which the
forward pass saves for the backward pass.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.states import by_channel

WARPS = 1  # of a program: no sum needs a barrier


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    channels: int  # N
    heads: int  # H
    kernel: int  # K
    back: int  # steps from the first value of a window to the step of the output
    past: int  # P, values of the history
    dynamic: bool  # whether each step has weights of its own
    softmax: bool  # whether they are the softmax of their scores
    group: int  # heads of a program
    width: int  # C
    blocks: int  # programs for the channels of a head
    steps: int  # of a tile


class Lanes(NamedTuple):
    """Values inside a kernel: the lanes (L,) of a program, and where it is."""

    channel: Any
    head: Any
    here: Any  # whether they exist
    first: Any  # index of the first head of the program
    block: Any  # which of the blocks of channels of each head
    row: Any
    tile: Any  # index of the tile of steps


@triton.jit
def _lanes(rows, config: tl.constexpr):
    """Return the lanes of this program."""
    heads: tl.constexpr = config.heads
    size: tl.constexpr = config.channels
    program = tl.program_id(0).to(tl.int64)
    groups: tl.constexpr = (heads + config.group - 1) // config.group
    first, program = (program % groups * config.group).to(tl.int32), program // groups
    block, program = (program % config.blocks).to(tl.int32), program // config.blocks
    lane = tl.arange(0, config.group * config.width)
    head = first + lane // config.width
    # the channels of head h are those from ⌈h N / H⌉ on
    channel = (head * size + heads - 1) // heads + block * config.width + lane % config.width
    here = (head < heads) & (channel < ((head + 1) * size + heads - 1) // heads)
    return Lanes(channel, head, here, first, block, program % rows, program // rows)


@triton.jit
def _length(lengths, row, steps):
    """Return the length of a row."""
    return steps if lengths is None else tl.load(lengths + row).to(tl.int32)


@triton.jit
def _place(t, row, rows):
    """Return the places (S,) in (T, B) of the steps t (S,) of a row."""
    return t.to(tl.int64) * rows + row


@triton.jit
def _values(values, history, s, lanes, mask, rows, config: tl.constexpr):
    """Return the values (S, L) at steps s (S,), those before step 0 from the history; zeros beyond the mask (S,)."""
    at = _place(s, lanes.row, rows)[:, None] * config.channels + lanes.channel[None, :]
    inside = (mask & (s >= 0))[:, None] & lanes.here[None, :]
    found = tl.load(values + at, mask=inside, other=0.0)
    if history is not None:
        place = lanes.row * config.past + config.past + s.to(tl.int64)
        inside = (mask & (s < 0) & (s >= -config.past))[:, None] & lanes.here[None, :]
        found += tl.load(history + (place[:, None] * config.channels + lanes.channel[None, :]), mask=inside, other=0.0)
    return found


@triton.jit
def _starts(starts, t, mask, row, rows):
    """Return whether the row is reset before the steps t (S,), False beyond the mask (S,)."""
    return tl.load(starts + _place(t, row, rows), mask=mask, other=0) != 0


@triton.jit
def _normalized(scores, stats, at, mask, j, config: tl.constexpr):
    """Return the weights at place j of heads at `at` in (T, B, H), those that the factors `mask` do not multiply yet.

    `stats` has the largest of the scores and the sum of exponentials; zeros beyond the mask.
    """
    found = tl.load(scores + (at * config.kernel + j), mask=mask, other=0.0)
    if config.softmax:
        largest = tl.load(stats + 2 * at, mask=mask, other=0.0)
        total = tl.load(stats + (2 * at + 1), mask=mask, other=1.0)
        found = tl.where(mask, tl.exp(found - largest) / total, 0.0)
    return found


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_convolution(
    values, weights, history, factors, lengths, starts, outputs, stats, steps, rows, config: tl.constexpr
):
    """Write the outputs (T, B, N), zero beyond the lengths.

    Args:
        values, weights, history, lengths, starts: See `gyral.ops.convolution.naive.convolution`; starts are uint8.
        factors: The argument `mask`.
        stats: (T, B, H, 2), of the scores of each head the largest one, and the sum of exponentials, which are written
            if there is a softmax.
    """
    lanes = _lanes(rows, config)
    size: tl.constexpr = config.kernel
    t = (lanes.tile * config.steps).to(tl.int32) + tl.arange(0, config.steps)
    reached = t < _length(lengths, lanes.row, steps)
    valid = reached[:, None] & lanes.here[None, :]
    at = _place(t, lanes.row, rows)[:, None] * config.heads + lanes.head[None, :]
    total = tl.zeros(valid.shape, tl.float32)
    largest, exponentials = total + float("-inf"), total
    if config.dynamic and config.softmax:
        for j in range(size):
            score = tl.load(weights + (at * config.kernel + j), mask=valid, other=0.0)
            largest = tl.maximum(largest, score)
    for index in range(size):
        j = config.kernel - 1 - index
        s = t + (j - config.back)
        value = _values(values, history, s, lanes, reached & (s < _length(lengths, lanes.row, steps)), rows, config)
        if config.dynamic:
            weight = tl.load(weights + (at * config.kernel + j), mask=valid, other=0.0)
            if config.softmax:
                weight = tl.exp(weight - largest)
                exponentials += weight
            if factors is not None:
                weight *= tl.load(factors + (at * config.kernel + j), mask=valid, other=0.0)
        else:
            weight = tl.load(weights + (lanes.head * config.kernel + j), mask=lanes.here, other=0.0)[None, :]
        total += weight * value
        if starts is not None:  # a start at a step hides all earlier ones
            reached = reached & (_starts(starts, s, reached & (s >= 0) & (s <= t), lanes.row, rows) == 0)
    if config.dynamic and config.softmax:
        total = total / exponentials
        leads = valid & ((lanes.block == 0) & (tl.arange(0, config.group * config.width) % config.width == 0))[None, :]
        tl.store(stats + 2 * at, largest, mask=leads)
        tl.store(stats + (2 * at + 1), exponentials, mask=leads)
    to = _place(t, lanes.row, rows)[:, None] * config.channels + lanes.channel[None, :]
    tl.store(outputs + to, tl.where(valid, total, 0.0), mask=(t < steps)[:, None] & lanes.here[None, :])


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_values(
    weights,
    factors,
    lengths,
    starts,
    stats,
    grad_outputs,
    grad_values,
    grad_history,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of values and history.

    Step s is in the windows of the steps from s + back − K + 1 to s + back. Steps before 0 are in the history.
    """
    lanes = _lanes(rows, config)
    size: tl.constexpr = config.kernel
    s = (lanes.tile * config.steps).to(tl.int32) - config.past + tl.arange(0, config.steps)
    length = _length(lengths, lanes.row, steps)
    reaching = s < length
    exists, is_inside = (s < steps)[:, None] & lanes.here[None, :], (s >= 0)[:, None]
    d = tl.zeros(exists.shape, tl.float32)
    for index in range(size):
        j = config.kernel - 1 - index
        t = s + (config.back - j)
        valid = reaching & (t >= 0) & (t < length)
        if starts is not None:  # a start at a step hides all earlier ones from it and from those after it
            reaching = reaching & (_starts(starts, t, valid & (t > s), lanes.row, rows) == 0)
            valid = valid & reaching
        mask = valid[:, None] & lanes.here[None, :]
        place = _place(t, lanes.row, rows)[:, None]
        dy = tl.load(grad_outputs + (place * config.channels + lanes.channel[None, :]), mask=mask, other=0.0)
        if config.dynamic:
            at = place * config.heads + lanes.head[None, :]
            weight = _normalized(weights, stats, at, mask, j, config)
            if factors is not None:
                weight *= tl.load(factors + (at * config.kernel + j), mask=mask, other=0.0)
        else:
            weight = tl.load(weights + (lanes.head * config.kernel + j), mask=lanes.here, other=0.0)[None, :]
        d += weight * dy
    to = _place(s, lanes.row, rows)[:, None] * config.channels + lanes.channel[None, :]
    tl.store(grad_values + to, d, mask=exists & is_inside)
    if grad_history is not None:
        before = (lanes.row * config.past + config.past + s.to(tl.int64))[:, None] * config.channels
        tl.store(grad_history + (before + lanes.channel[None, :]), d, mask=exists & (is_inside == 0))


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_weights(
    values,
    weights,
    history,
    factors,
    lengths,
    starts,
    stats,
    outputs,
    grad_outputs,
    grad_weights,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of the weights, of each block of channels.

    They are (blocks, T, B, H, K) if each step has its weights, else sums over a tile of steps, (tiles, B, blocks, H,
    K). The softmax needs Σ_j w_j ∂L/∂w_j of a head, which is Σ_c y_c ∂L/∂y_c over its channels.
    """
    lanes = _lanes(rows, config)
    size: tl.constexpr = config.kernel
    t = (lanes.tile * config.steps).to(tl.int32) + tl.arange(0, config.steps)
    length = _length(lengths, lanes.row, steps)
    reached = t < length
    mask = reached[:, None] & lanes.here[None, :]
    place = _place(t, lanes.row, rows)[:, None]
    output = place * config.channels + lanes.channel[None, :]
    dy = tl.load(grad_outputs + output, mask=mask, other=0.0)
    head = lanes.first + tl.arange(0, config.group)
    at, exists = place * config.heads + head[None, :], (t < steps)[:, None] & (head < config.heads)[None, :]
    valid = exists & (t < length)[:, None]
    along = tl.zeros(exists.shape, tl.float32)
    if config.dynamic and config.softmax:
        y = tl.load(outputs + output, mask=mask, other=0.0)
        along = tl.sum(by_channel(y * dy, config.width), axis=2)
    for index in range(size):
        j = config.kernel - 1 - index
        s = t + (j - config.back)
        value = _values(values, history, s, lanes, reached & (s < length), rows, config)
        d = tl.sum(by_channel(value * dy, config.width), axis=2)
        if config.dynamic:
            if factors is not None:
                d *= tl.load(factors + (at * config.kernel + j), mask=valid, other=0.0)
            if config.softmax:
                d = _normalized(weights, stats, at, valid, j, config) * (d - along)
            of_block = lanes.block.to(tl.int64) * steps * rows * config.heads
            tl.store(grad_weights + ((of_block + at) * config.kernel + j), d, mask=exists)
        else:
            to = ((lanes.tile * rows + lanes.row) * config.blocks + lanes.block) * config.heads + head
            tl.store(grad_weights + (to * config.kernel + j), tl.sum(d, axis=0), mask=head < config.heads)
        if starts is not None:
            reached = reached & (_starts(starts, s, reached & (s >= 0) & (s <= t), lanes.row, rows) == 0)
