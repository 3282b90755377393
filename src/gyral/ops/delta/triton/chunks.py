"""Chunks of micro-steps: where their numbers are in the arguments of the operator, and how they are read.

The n micro-steps of T steps are T n in a row, i = t n + j. The first one of a step decays the memory, the last one
reads it. A chunk has C of them, whether or not n divides C. Beyond the length of a row all numbers count as zero.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.delta.naive import EPSILON
from gyral.ops.triton.rows import LARGEST

_EPSILON = tl.constexpr(EPSILON)
_ALL = tl.constexpr(tl.PropagateNan.ALL)
_SMALLEST = tl.constexpr(-120.0)  # of log decays: the exponential of less is zero, too
_UNITS = tl.constexpr(256.0)  # a multiple of 1/256 up to 120 has 15 bits, and the sum of 64 such has 21


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    groups: int  # G
    heads: int  # H
    micro: int  # n
    key_size: int  # K
    value_size: int  # V
    decay: str  # "none", "scalar" or "vector"
    erase: str  # "none", "rates" or "vector"
    writes: bool  # whether there are rates of writing
    unit: bool  # whether k and q become unit vectors
    precision: str  # of products of float32
    chunk: int  # C
    block_key: int  # channels of keys that a program handles at once, where it has all steps of one chunk
    block_value: int  # channels of values, there
    padded_key: int  # width of rows of keys in the tensors between the kernels, zeros behind K
    padded_value: int  # width of rows of values there, and of those of memories; nothing reads what is behind V
    carry_value: int  # channels of values of a program that runs through all chunks


class Chunk(NamedTuple):
    """Values inside a kernel, of the micro-steps of a chunk (C,) unless another shape is given."""

    at: Any  # index of the chunk of this head among all chunks, ()
    head: Any  # ()
    group: Any  # ()
    step: Any  # t B + b
    place: Any  # (t B + b) n + j
    exists: Any  # t < T
    valid: Any  # t is within the length of the row
    reads: Any  # valid, and the last micro-step of its step
    decays: Any  # valid, the first micro-step of its step, and no start
    time: Any  # t
    segment: Any  # number of starts since the first step of the chunk, int32


@triton.jit
def load_chunk(chunk, item, steps, rows, lengths, starts, config: tl.constexpr):
    """Return a chunk of the head number `item` of all heads of all rows."""
    micro: tl.constexpr = config.micro
    row, head = (item // config.heads).to(tl.int64), item % config.heads
    i = tl.arange(0, config.chunk)
    first = chunk * config.chunk + i
    t, j = first // micro, first % micro
    length = steps if lengths is None else tl.load(lengths + row).to(tl.int32)
    valid = t < length
    step = t.to(tl.int64) * rows + row
    begins = i * 0
    segment = begins
    if starts is not None:
        begins = tl.load(starts + step, mask=valid & (j == 0), other=0).to(tl.int32)
        begins = (begins != 0).to(tl.int32)
        segment = tl.sum(tl.where(i[None, :] <= i[:, None], begins[None, :], 0), axis=1)
    return Chunk(
        chunk.to(tl.int64) * rows * config.heads + item,
        head,
        head // (config.heads // config.groups),
        step,
        step * micro + j,
        t < steps,
        valid,
        valid & (j == micro - 1),
        valid & (j == 0) & (begins == 0),
        t,
        segment,
    )


@triton.jit
def zeros(rows: tl.constexpr, columns: tl.constexpr):
    """Return zeros (rows, columns)."""
    return tl.zeros([rows, columns], tl.float32)


@triton.jit
def is_number(x):
    """Return whether a number is finite."""
    return tl.abs(x) <= LARGEST


@triton.jit
def cleaned(x):
    """Return x with zeros in the place of what is not finite."""
    return tl.where(is_number(x), x, 0.0)


@triton.jit
def load_rows(pointer, at, mask, column, width: tl.constexpr):
    """Return rows (C, W) that begin at the offsets (C,), with zeros where the mask is False and behind the width."""
    inside = mask[:, None] & (column < width)[None, :]
    return tl.load(pointer + at[:, None] + column[None, :], mask=inside, other=0.0)


@triton.jit
def load_columns(pointer, at, mask, column, width: tl.constexpr):
    """Return the same transposed, (W, C)."""
    inside = (column < width)[:, None] & mask[None, :]
    return tl.load(pointer + at[None, :] + column[:, None], mask=inside, other=0.0)


@triton.jit
def query_at(c, config: tl.constexpr):
    """Return the offsets of the rows of q."""
    return (c.step * config.groups + c.group) * config.key_size


@triton.jit
def key_at(c, config: tl.constexpr):
    """Return the offsets of the rows of k, and of vectors of erasing."""
    return (c.place * config.groups + c.group) * config.key_size


@triton.jit
def value_at(c, config: tl.constexpr):
    """Return the offsets of the rows of v."""
    return (c.place * config.heads + c.head) * config.value_size


@triton.jit
def output_at(c, config: tl.constexpr):
    """Return the offsets of the rows of the outputs."""
    return (c.step * config.heads + c.head) * config.value_size


@triton.jit
def load_scales(q, k, c, config: tl.constexpr):
    """Return the factors that make q and k unit vectors, (C,) each; ones if they stay as they are."""
    one = tl.arange(0, config.chunk) * 0.0 + 1.0
    of_q, of_k = one, one
    if config.unit:
        squares_q, squares_k = one * 0.0, one * 0.0
        for first in range(0, config.key_size, config.block_key):
            column = first + tl.arange(0, config.block_key)
            x = load_rows(q, query_at(c, config), c.reads, column, config.key_size)
            squares_q += tl.sum(x * x, axis=1)
            x = cleaned(load_rows(k, key_at(c, config), c.valid, column, config.key_size))
            squares_k += tl.sum(x * x, axis=1)
        of_q = 1.0 / tl.sqrt((squares_q + _EPSILON) * config.key_size)
        of_k = 1.0 / tl.sqrt(squares_k + _EPSILON)
    return of_q, of_k


@triton.jit
def load_rates(pointer, c, width: tl.constexpr, index):
    """Return rates (C,) of the micro-steps, from (T, B, n, W), those with an index in W."""
    return tl.load(pointer + c.place * width + index, mask=c.valid, other=0.0)


@triton.jit
def load_erasers(erase, k, rates, c, column, config: tl.constexpr):
    """Return r (C, W) for columns of unit keys k; `rates` (C,) are those of erasing if there are such."""
    if config.erase == "rates":
        r = rates[:, None] * k
    else:
        r = load_rows(erase, key_at(c, config), c.valid, column, config.key_size)
    return r


@triton.jit
def _split(gamma):
    """Return a part of log decays whose sums are exact in float32, the rest, and whether they are numbers.

    Sums of a chunk may be large, and their differences small. With the parts apart, a difference has all its digits.
    """
    gamma = tl.maximum(gamma, _SMALLEST, propagate_nan=_ALL)  # −∞, which forgets all, too
    good = is_number(gamma)
    gamma = tl.where(good, gamma, 0.0)
    coarse = tl.floor(gamma * _UNITS + 0.5) / _UNITS
    return coarse, gamma - coarse, good


@triton.jit
def load_sums(decay, c, config: tl.constexpr):
    """Return the sums G of the log decays of a memory in two parts, (C, 1) and (1, C); and whether γ are finite, (C,).

    A step after a start does not decay: the memory before it counts as zero.
    """
    i = tl.arange(0, config.chunk)
    gamma = tl.load(decay + c.step * config.heads + c.head, mask=c.decays, other=0.0)
    coarse, fine, good = _split(gamma)
    until, turned = i[None, :] <= i[:, None], i[:, None] <= i[None, :]
    high = tl.sum(tl.where(until, coarse[None, :], 0.0), axis=1)[:, None]
    low = tl.sum(tl.where(until, fine[None, :], 0.0), axis=1)[:, None]
    high_turned = tl.sum(tl.where(turned, coarse[:, None], 0.0), axis=0)[None, :]
    low_turned = tl.sum(tl.where(turned, fine[:, None], 0.0), axis=0)[None, :]
    return high, low, high_turned, low_turned, good


@triton.jit
def load_channel_sums(decay, c, column, config: tl.constexpr):
    """Return the same for channels: the two parts (C, W), and whether the γ of a micro-step are numbers, (C,).

    They are products: `tl.cumsum` has failed to compile here.
    """
    i = tl.arange(0, config.chunk)
    at = (c.step * config.heads + c.head) * config.key_size
    coarse, fine, good = _split(load_rows(decay, at, c.decays, column, config.key_size))
    until = tl.where(i[None, :] <= i[:, None], 1.0, 0.0)
    high = tl.dot(until, coarse, input_precision="tf32x3")
    low = tl.dot(until, fine, input_precision="tf32x3")
    return high, low, tl.min(good.to(tl.int32), axis=1) > 0


@triton.jit
def last_of(x, config: tl.constexpr):
    """Return the last row (1, W) of (C, W)."""
    is_last = tl.arange(0, config.chunk) == config.chunk - 1
    return tl.sum(tl.where(is_last[:, None], x, 0.0), axis=0)[None, :]


@triton.jit
def last_segment(c, config: tl.constexpr):
    """Return the segment of the last micro-step of a chunk, ()."""
    return tl.max(c.segment, axis=0)


@triton.jit
def decays_between(high, low, other_high, other_low, mask):
    """Return the exponentials of differences of sums (C, 1) and (1, C), or the reverse; 0 where the mask is False."""
    return tl.exp(tl.where(mask, (high - other_high) + (low - other_low), float("-inf")))


@triton.jit
def decays_of_channels(high, low, mask):
    """Return the same for channels, (C, C, W)."""
    difference = (high[:, None, :] - high[None, :, :]) + (low[:, None, :] - low[None, :, :])
    return tl.exp(tl.where(mask[:, :, None], difference, float("-inf")))
