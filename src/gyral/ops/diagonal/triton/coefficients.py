"""a_t and b_t of each kind of recurrence, and their derivatives, for a tile (S, K) of steps and channels."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.diagonal.naive import SHARPNESS, SMALLEST
from gyral.ops.triton.exponentials import exp_minus_one, softplus
from gyral.ops.triton.rows import activate, activation_slope, sigmoid
from gyral.ops.triton.scan import load_pair

_SHARPNESS, _SMALLEST = tl.constexpr(SHARPNESS), tl.constexpr(SMALLEST)


class Config(NamedTuple):
    """Compile-time constants of a kernel. The widths are numbers at a step of a row."""

    kind: str  # "constant" or "decay" of `diagonal_scan`, "min_gru" or "min_lstm" of `min_gated`, "rg_lru", "blend"
    size: int  # N, the number of channels of a row
    is_complex: bool  # of `diagonal_scan`
    activation: str  # of `blend`; "" for g of minGRU
    values_width: int  # of b_t, or of the candidates or inputs that it is made of
    gates_width: int  # of a_t, or of the gates that it is made of; 0 if there is none
    gates_at: int  # the index of the first gate
    two_gates: bool  # or two parts of a_t
    block: int  # units of a gate that are followed by those of the other gate
    sums: int  # sums over the steps, which are gradients of constants


class Tile(NamedTuple):
    """Values inside a kernel."""

    value_at: Any  # offsets (S, K)
    gate_at: Any  # offsets (S, K) of the first gate
    unit: Any  # (1, K), indices of the channels in their rows
    is_first: Any  # (S, K), whether the step is the first of a sequence, which `rg_lru` treats apart
    valid: Any  # (S, K), False beyond the lengths


@triton.jit
def coefficients(values, gates, constants, bias, tile, config: tl.constexpr):
    """Return a_t and b_t: real part and imaginary part of each. A step that is not valid has a = 1 and b = 0."""
    b, bi = load_pair(values + tile.value_at, config.size, tile.valid, config.is_complex)
    if config.kind == "constant":
        a, ai = load_pair(constants + tile.unit, config.size, tile.unit >= 0, config.is_complex)
    elif config.kind == "decay":
        a, ai = load_pair(gates + tile.gate_at, config.block, tile.valid, config.two_gates)
    elif config.kind == "rg_lru":
        _, write, _, log_decay = _rg_lru(gates, constants, bias, tile, config)
        a = tl.where(tile.is_first, 0.0, tl.exp(log_decay))
        b *= sigmoid(write) * tl.where(tile.is_first, 1.0, tl.sqrt(-exp_minus_one(2 * log_decay)))
        ai = a
    else:
        a, update, _, _ = _update_gate(gates, tile, config)
        b, ai = update * _candidate(b, config)[0], a
    return tl.where(tile.valid, a, 1.0), tl.where(tile.valid, ai, 0.0), tl.where(tile.valid, b, 0.0), bi


@triton.jit
def gated_gradients(values, gates, constants, bias, tile, d, before, config: tl.constexpr):
    """Return the gradients of value, first and second gate, and decay of `rg_lru`, for the kinds that have gates.

    `d` is the gradient of h_t, zero where not valid, `before` is h_{t−1}. A gradient of what a kind has not means
    nothing.
    """
    value = tl.load(values + tile.value_at, mask=tile.valid, other=0.0)
    if config.kind == "rg_lru":
        recurrence, write, decay, log_decay = _rg_lru(gates, constants, bias, tile, config)
        r, i, a, squared = sigmoid(recurrence), sigmoid(write), tl.exp(log_decay), -exp_minus_one(2 * log_decay)
        root = tl.where(tile.is_first, 1.0, tl.sqrt(squared))
        slope = -2 * a * a / tl.sqrt(tl.maximum(4 * squared, _SMALLEST))
        d_rate = -_SHARPNESS * r * tl.where(tile.is_first, 0.0, d * (before * a + value * i * slope))
        d_value, d_first, d_second = d * root * i, d_rate, d * root * value * i * sigmoid(-write)
        d_first, d_decay = d_rate * softplus(decay) * sigmoid(-recurrence), d_rate * sigmoid(decay)
    else:
        kept, update, first, second = _update_gate(gates, tile, config)
        candidate, slope = _candidate(value, config)
        d_value, d_first = d * update * slope, d * (candidate - before) * update * kept
        d_second, d_decay = d_first, d_first
        if config.kind == "min_lstm":  # of log σ(i) − log σ(f)
            d_first, d_second = -d_first * sigmoid(-first), d_first * sigmoid(-second)
        elif config.kind == "blend":
            d_first = -d_first
    return d_value, d_first, d_second, d_decay


@triton.jit
def _rg_lru(gates, constants, bias, tile, config: tl.constexpr):
    """Return recurrence gate and input gate before their sigmoids, Λ (1, K), and log a_t."""
    decay = tl.load(constants + tile.unit)
    recurrence, write = load_pair(gates + tile.gate_at, config.block, tile.valid, config.two_gates)
    recurrence += tl.load(bias + tile.unit)
    write += tl.load(bias + config.size + tile.unit)
    return recurrence, write, decay, -_SHARPNESS * sigmoid(recurrence) * softplus(decay)


@triton.jit
def _update_gate(gates, tile, config: tl.constexpr):
    """Return 1 − z and z, each exact if the other is close to 1, and the gates that they are made of."""
    first, second = load_pair(gates + tile.gate_at, config.block, tile.valid, config.two_gates)
    if config.kind == "min_lstm":  # z = (1 + e^−f) / (1 + e^−f + 1 + e^−i), each term divided by the largest
        largest = tl.maximum(tl.maximum(-first, -second), 0.0)
        one = tl.exp(-largest)
        keep, write = one + tl.exp(-second - largest), one + tl.exp(-first - largest)
    else:
        k = -first if config.kind == "blend" else first
        small = tl.exp(-tl.abs(k))
        keep, write = tl.where(k >= 0, small, 1.0), tl.where(k >= 0, 1.0, small)
    return keep / (keep + write), write / (keep + write), first, second


@triton.jit
def _candidate(c, config: tl.constexpr):
    """Return g(c) and its derivative."""
    if config.kind == "blend":
        value = activate(c, config)
        slope = activation_slope(c, value, config)
    else:
        value = tl.where(c >= 0, c + 0.5, sigmoid(c))
        slope = tl.where(c >= 0, 1.0, value * (1.0 - value))
    return value, slope
