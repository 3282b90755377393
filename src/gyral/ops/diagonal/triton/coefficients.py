"""a_t and b_t of each kind of recurrence, and their derivatives, for a tile (S, K) of steps and channels."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.min_gated.naive import SHARPNESS, SMALLEST
from gyral.ops.rum.triton.rowwise import activate, activation_slope, sigmoid

_SHARPNESS, _SMALLEST = tl.constexpr(SHARPNESS), tl.constexpr(SMALLEST)


class Config(NamedTuple):
    """What is fixed when a kernel is compiled.

    Attributes:
        kind: "constant" or "decay" for `diagonal_scan`, "min_gru" or "min_lstm" for `min_gated`, "rg_lru", "blend".
        size: N, the number of channels of a row.
        is_complex: Whether the numbers are complex; only for `diagonal_scan`.
        activation: g of the candidate g(c): "positive" of `min_gated`, or that of `blend`.
        values_width: Numbers at a step of a row in the tensor of b_t, or of the candidates or inputs that it is made of.
        gates_width: The same in the tensor of a_t or of the gates that it is made of; 0 if there is none.
        gates_at: Index of the first gate among them.
        sums: The number of sums over the steps, which are gradients of constants.
    """

    kind: str
    size: int
    is_complex: bool
    activation: str
    values_width: int
    gates_width: int
    gates_at: int
    sums: int


class Tile(NamedTuple):
    """Values inside a kernel.

    Attributes:
        values, gates: Offsets (S, K) of the first value and of the first gate.
        second: Distance of the second gate from the first.
        unit: (K,), the indices of the channels in their rows.
        is_first: (S, K), whether the step is the first of a segment, which `rg_lru` treats apart.
        valid: (S, K), False beyond the lengths.
    """

    values: Any
    gates: Any
    second: Any
    unit: Any
    is_first: Any
    valid: Any


@triton.jit
def coefficients(values, gates, constants, bias, tile, config: tl.constexpr):
    """Return a_t and b_t: real part and imaginary part of each. A step that is not valid has a = 1 and b = 0."""
    b = tl.load(values + tile.values, mask=tile.valid, other=0.0)
    ai, bi = b, b
    if config.kind == "constant":
        a = tl.load(constants + tile.unit)[None, :]
        if config.is_complex:
            ai = tl.load(constants + config.size + tile.unit)[None, :]
    elif config.kind == "decay":
        a = tl.load(gates + tile.gates, mask=tile.valid, other=1.0)
        if config.is_complex:
            ai = tl.load(gates + tile.gates + tile.second, mask=tile.valid, other=0.0)
    elif config.kind == "rg_lru":
        recurrence, write = _rg_lru_gates(gates, bias, tile, config)
        log_decay = -_SHARPNESS * sigmoid(recurrence) * softplus(tl.load(constants + tile.unit))[None, :]
        a = tl.where(tile.is_first, 0.0, tl.exp(log_decay))
        b *= sigmoid(write) * tl.where(tile.is_first, 1.0, tl.sqrt(_one_minus_exp(2 * log_decay)))
    else:
        a, update, _, _ = _update_gate(gates, tile, config)
        b = update * _candidate(b, config)[0]
    if config.is_complex:
        bi = tl.load(values + tile.values + config.size, mask=tile.valid, other=0.0)
        ai, bi = tl.where(tile.valid, ai, 0.0), tl.where(tile.valid, bi, 0.0)
    return tl.where(tile.valid, a, 1.0), ai, tl.where(tile.valid, b, 0.0), bi


@triton.jit
def gated_gradients(values, gates, constants, bias, tile, d, before, config: tl.constexpr):
    """Return the gradients of what a_t and b_t are made of, where a kind has gates.

    Args:
        values, gates, constants, bias, tile, config: As for `coefficients`.
        d, before: (S, K), the gradient of h_t, zero where not valid, and h_{t−1}.

    Returns:
        The gradients of value, first and second gate, and of the decay of `rg_lru`; those that are none have no
        meaning.
    """
    value = tl.load(values + tile.values, mask=tile.valid, other=0.0)
    if config.kind == "rg_lru":
        recurrence, write = _rg_lru_gates(gates, bias, tile, config)
        decay = tl.load(constants + tile.unit)
        r, i, rate = sigmoid(recurrence), sigmoid(write), softplus(decay)[None, :]
        log_decay = -_SHARPNESS * r * rate
        a, squared = tl.exp(log_decay), _one_minus_exp(2 * log_decay)
        root = tl.where(tile.is_first, 1.0, tl.sqrt(squared))
        slope = -2 * a * a / tl.sqrt(tl.maximum(4 * squared, _SMALLEST))
        d_log = -_SHARPNESS * tl.where(tile.is_first, 0.0, d * (before * a + value * i * slope))
        d_value, d_first = d * root * i, d_log * rate * r * sigmoid(-recurrence)
        d_second = d * root * value * i * sigmoid(-write)
        d_decay = d_log * r * sigmoid(decay)[None, :]
    else:
        kept, update, first, second = _update_gate(gates, tile, config)
        candidate, slope = _candidate(value, config)
        d_value = d * update * slope
        d_first = d * (candidate - before) * update * kept
        d_second, d_decay = d_first, d_first
        if config.kind == "min_lstm":  # of log σ(i) − log σ(f)
            d_second = d_first * sigmoid(-second)
            d_first *= -sigmoid(-first)
        elif config.kind == "blend":
            d_first = -d_first
    return d_value, d_first, d_second, d_decay


@triton.jit
def _rg_lru_gates(gates, bias, tile, config: tl.constexpr):
    """Return recurrence gate and input gate before their sigmoids."""
    recurrence = tl.load(gates + tile.gates, mask=tile.valid, other=0.0)
    write = tl.load(gates + tile.gates + tile.second, mask=tile.valid, other=0.0)
    return (
        recurrence + tl.load(bias + tile.unit)[None, :],
        write + tl.load(bias + config.size + tile.unit)[None, :],
    )


@triton.jit
def _update_gate(gates, tile, config: tl.constexpr):
    """Return 1 − z and z, each exact if the other is close to 1, and the gates that they are made of."""
    first = tl.load(gates + tile.gates, mask=tile.valid, other=0.0)
    second = first
    if config.kind == "min_lstm":  # z = (1 + e^−f) / (1 + e^−f + 1 + e^−i), whose terms are divided by the largest
        second = tl.load(gates + tile.gates + tile.second, mask=tile.valid, other=0.0)
        largest = tl.maximum(tl.maximum(-first, -second), 0.0)
        one = tl.exp(-largest)
        keep, write = one + tl.exp(-second - largest), one + tl.exp(-first - largest)
    else:
        k = -first if config.kind == "blend" else first
        small = tl.exp(-tl.abs(k))
        keep, write = tl.where(k >= 0, small, 1.0), tl.where(k >= 0, 1.0, small)
    total = keep + write
    return keep / total, write / total, first, second


@triton.jit
def _candidate(c, config: tl.constexpr):
    """Return g(c) and its derivative."""
    if config.activation == "positive":
        value = tl.where(c >= 0, c + 0.5, sigmoid(c))
        slope = tl.where(c >= 0, 1.0, value * (1.0 - value))
    else:
        value = activate(c, config)
        slope = activation_slope(c, value, config)
    return value, slope


@triton.jit
def softplus(x):
    """Return log(1 + e^x), to the last digits also where it is small."""
    small = tl.exp(-tl.abs(x))
    ratio = small / (2.0 + small)  # log(1 + y) = 2 artanh(y / (2 + y))
    square = ratio * ratio
    series = 1.0 / 13 + square / 15
    for odd in tl.static_range(11, 0, -2):
        series = 1.0 / odd + square * series
    return tl.maximum(x, 0.0) + 2.0 * ratio * series


@triton.jit
def _one_minus_exp(x):
    """Return 1 − e^x for x ≤ 0, to the last digits also near 0."""
    near = tl.maximum(x, -0.5)
    series = 1.0 + near / 9
    for divisor in tl.static_range(8, 1, -1):
        series = 1.0 + near / divisor * series
    return tl.where(x > -0.5, -near * series, 1.0 - tl.exp(x))
