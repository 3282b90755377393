"""Tiles (L, K S) of L steps of K channels, each of which has S numbers of a state, next to each other.

Where K S is at least the number of threads of a program, a thread has all steps of its numbers: a scan over the steps
exchanges nothing between threads, and to flip the steps costs nothing.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.scan import scan_tile

LANES = 128  # numbers of a tile at a step, K S; more if one channel has more


class Tile(NamedTuple):
    """The sizes of a tile, which are fixed when a kernel is compiled; K and S are powers of 2."""

    size: int  # the channels of a row
    states: int  # the numbers in the state of a channel
    channels: int  # K
    width: int  # S

    @property
    def warps(self) -> int:
        """The warps of a program."""
        return min(32, max(1, self.channels * self.width // 32))

    @property
    def groups(self) -> int:
        """The number of tiles that have all channels of a row."""
        return -(-self.size // self.channels)


def tile_of(size: int, states: int) -> Tile:
    """Return the sizes of a tile for a number of channels and of numbers in the state of each."""
    width = triton.next_power_of_2(states)
    return Tile(size, states, min(triton.next_power_of_2(size), max(1, LANES // width)), width)


@triton.jit
def lanes(first, config: tl.constexpr):
    """Return the K channels from `first` on, and whether they exist; places of their states, and whether they exist.

    A place is that in a tensor of all channels with as many numbers as their states have.
    """
    channel = first + tl.arange(0, config.channels)
    lane = tl.arange(0, config.channels * config.width)
    state = lane % config.width
    place = (first + lane // config.width) * config.states + state
    return channel, channel < config.size, place, (place < config.size * config.states) & (state < config.states)


@triton.jit
def of_channels(x, states: tl.constexpr):
    """Return the numbers (L, K) of channels at each number of their states, (L, K S)."""
    shape: tl.constexpr = x.shape
    wide = tl.broadcast_to(x[:, :, None], (shape[0], shape[1], states))
    return tl.reshape(wide, (shape[0], shape[1] * states))


@triton.jit
def of_states(x, channels: tl.constexpr):
    """Return the numbers (L, S) of a state, which all channels share, at each of the channels, (L, K S)."""
    shape: tl.constexpr = x.shape
    wide = tl.broadcast_to(x[:, None, :], (shape[0], channels, shape[1]))
    return tl.reshape(wide, (shape[0], channels * shape[1]))


@triton.jit
def by_channel(x, states: tl.constexpr):
    """Return a tile (L, K S) as (L, K, S)."""
    shape: tl.constexpr = x.shape
    return tl.reshape(x, (shape[0], shape[1] // states, states))


@triton.jit
def sum_states(x, states: tl.constexpr):
    """Return the sums (L, K) over the states of each channel."""
    return tl.sum(by_channel(x, states), axis=2)


@triton.jit
def sum_channels(x, states: tl.constexpr):
    """Return the sums (L, S) over the channels of each number of a state."""
    return tl.sum(by_channel(x, states), axis=1)


@triton.jit
def marks_of(started, like):
    """Return marks of `scan_tile` with the shape of a tile, given them for the steps, (L, 1)."""
    return tl.broadcast_to(started.to(tl.int32), like.shape)


@triton.jit
def scan_back(a, ai, b, bi, marks, h, hi, is_complex: tl.constexpr):
    """Return d_t = a_t d_{t+1} + b_t for all steps of a tile; see `scan_tile`. `h` is d after the last step."""
    if marks is not None:
        marks = tl.flip(marks, 0)
    if is_complex:
        ai, bi = tl.flip(ai, 0), tl.flip(bi, 0)
    d, di = scan_tile(tl.flip(a, 0), ai, tl.flip(b, 0), bi, marks, h, hi, is_complex)
    d, di = tl.flip(d, 0), tl.flip(di, 0)
    return d, di
