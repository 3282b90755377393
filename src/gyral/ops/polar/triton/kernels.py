"""The kernels. A program computes some of the numbers, whatever row they are in."""

import math
from typing import NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.rows import sigmoid
from gyral.ops.triton.scan import load_pair, store_pair

TURN = tl.constexpr(2 * math.pi)


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    size: int  # P
    block: int  # numbers of a program


@triton.jit
def _numbers(magnitude, phase, count, config: tl.constexpr):
    """Return indices of numbers, whether they exist, places of their real parts, and σ(u) and σ(v)."""
    index = tl.program_id(0).to(tl.int64) * config.block + tl.arange(0, config.block)
    here = index < count
    radius = sigmoid(tl.load(magnitude + index, mask=here, other=0.0))
    turns = sigmoid(tl.load(phase + index, mask=here, other=0.0))
    return index, here, index + index // config.size * config.size, radius, turns


@triton.jit(do_not_specialize=["count"])
def forward_polar(magnitude, phase, results, count, config: tl.constexpr):
    """Write σ(u) exp(2πi σ(v)) for `count` numbers u and v."""
    _, here, at, radius, turns = _numbers(magnitude, phase, count, config)
    angle = TURN * turns
    store_pair(results + at, config.size, radius * tl.cos(angle), radius * tl.sin(angle), here, True)


@triton.jit(do_not_specialize=["count"])
def backward_polar(magnitude, phase, grad, grad_magnitude, grad_phase, count, config: tl.constexpr):
    """Write the gradients of u and v."""
    index, here, at, radius, turns = _numbers(magnitude, phase, count, config)
    angle = TURN * turns
    cosine, sine = tl.cos(angle), tl.sin(angle)
    d, di = load_pair(grad + at, config.size, here, True)
    tl.store(grad_magnitude + index, (d * cosine + di * sine) * (radius * (1.0 - radius)), mask=here)
    of_angle = radius * (di * cosine - d * sine)
    tl.store(grad_phase + index, of_angle * (TURN * turns * (1.0 - turns)), mask=here)
