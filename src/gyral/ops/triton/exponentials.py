"""Functions of numbers that keep their last digits where e^x is close to 1 or to 0."""

import triton
import triton.language as tl


@triton.jit
def softplus(x):
    """Return log(1 + e^x)."""
    small = tl.exp(-tl.abs(x))
    ratio = small / (2.0 + small)  # log(1 + y) = 2 artanh(y / (2 + y))
    square = ratio * ratio
    series = 1.0 / 13 + square / 15
    for odd in tl.static_range(11, 0, -2):
        series = 1.0 / odd + square * series
    return tl.maximum(x, 0.0) + 2.0 * ratio * series


@triton.jit
def exp_minus_one(x):
    """Return e^x − 1."""
    near = tl.minimum(tl.maximum(x, -0.5), 0.5)
    series = 1.0 + near / 9
    for divisor in tl.static_range(8, 1, -1):
        series = 1.0 + near / divisor * series
    return tl.where(tl.abs(x) < 0.5, near * series, tl.exp(x) - 1.0)
