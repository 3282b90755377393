"""Functions of rows inside a kernel: of K rows (K, N) with scalars (K, 1), or of one row (N,) with scalars ().

A single row of its own is faster: its scalars are those of the processor, in the same registers of all threads.
"""

import torch
import triton
import triton.language as tl

TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)
_ALL = tl.constexpr(tl.PropagateNan.ALL)


@triton.jit
def total(x):
    """Return the sums of the rows."""
    return tl.sum(x, axis=len(x.shape) - 1, keep_dims=len(x.shape) > 1)


@triton.jit
def dot(a, b):
    """Return the inner products of the rows."""
    return total(a * b)


@triton.jit
def smallest(x):
    """Return the smallest of the scalars."""
    if len(x.shape) > 0:
        x = tl.min(x)
    return x


# Sums of several tensors in one reduction: threads exchange the values of all of them together.


@triton.jit
def add_2(a, b, other_a, other_b):
    return a + other_a, b + other_b


@triton.jit
def add_3(a, b, c, other_a, other_b, other_c):
    return a + other_a, b + other_b, c + other_c


@triton.jit
def add_4(a, b, c, d, other_a, other_b, other_c, other_d):
    return a + other_a, b + other_b, c + other_c, d + other_d


@triton.jit
def add_5(a, b, c, d, e, other_a, other_b, other_c, other_d, other_e):
    return a + other_a, b + other_b, c + other_c, d + other_d, e + other_e


@triton.jit
def totals_2(a, b):
    return tl.reduce((a, b), len(a.shape) - 1, add_2, keep_dims=len(a.shape) > 1)


@triton.jit
def totals_5(a, b, c, d, e):
    return tl.reduce((a, b, c, d, e), len(a.shape) - 1, add_5, keep_dims=len(a.shape) > 1)


@triton.jit
def inverse_root(x):
    """Return 1/√x, or 0 where x is below the smallest normal number or overflows."""
    nonzero = (x > TINY) & (x <= LARGEST)
    # correctly rounded: an error in the length of a unit vector makes the product of many rotations less orthogonal
    return tl.div_rn(nonzero.to(tl.float32), tl.sqrt_rn(tl.where(nonzero, x, 1.0)))


@triton.jit
def sigmoid(x):
    decay = tl.exp(-tl.abs(x))  # never overflows
    return tl.where(x >= 0, 1.0, decay) / (1.0 + decay)


@triton.jit
def tanh(x):
    size = tl.abs(x)
    decay = tl.exp(-2.0 * size)
    far = (1.0 - decay) / (1.0 + decay)
    # cancellation makes this inaccurate near 0; the polynomial is that of Cephes' tanhf
    square = tl.where(size < 0.625, x * x, 0.0)
    tail = (-5.70498872745e-3 * square + 2.06390887954e-2) * square - 5.37397155531e-2
    tail = (tail * square + 1.33314422036e-1) * square - 3.33332819422e-1
    return tl.where(size < 0.625, x + x * (square * tail), tl.where(x < 0, -far, far))


@triton.jit
def activate(x, config: tl.constexpr):
    """Return f(x) of the activation function with the name `config.activation`."""
    if config.activation == "relu":
        result = tl.maximum(x, 0.0, propagate_nan=_ALL)
    elif config.activation == "tanh":
        result = tanh(x)
    elif config.activation == "sigmoid":
        result = sigmoid(x)
    else:
        result = x / (1.0 + tl.abs(x))
    return result


@triton.jit
def activation_slope(x, activated, config: tl.constexpr):
    """Return f′(x), given x and `activated` = f(x)."""
    if config.activation == "relu":
        result = tl.where(x > 0, 1.0, 0.0)
    elif config.activation == "tanh":
        result = 1.0 - activated * activated
    elif config.activation == "sigmoid":
        result = activated * (1.0 - activated)
    else:
        reciprocal = 1.0 / (1.0 + tl.abs(x))
        result = reciprocal * reciprocal
    return result


@triton.jit
def normalize(x, epsilon, columns, size: tl.constexpr):
    """Return x (zero beyond `size`) with mean 0 and variance 1, and the reciprocal of its standard deviation.

    `epsilon` is added to the variance.
    """
    centred = tl.where(columns < size, x - total(x) / size, 0.0)
    scale = 1.0 / tl.sqrt_rn(dot(centred, centred) / size + epsilon)
    return centred * scale, scale


@triton.jit
def scale_and_shift(normal, norms, which: tl.constexpr, columns, size: tl.constexpr):
    """Apply gain and bias number `which` of the layer normalizations in `norms` (…, 2, N)."""
    at = norms + 2 * which * size + columns
    gain, bias = tl.load(at, mask=columns < size, other=0.0), tl.load(at + size, mask=columns < size, other=0.0)
    return normal * gain + bias


@triton.jit
def normalize_backward(d, normal, scale, norms, grad_norms, which: tl.constexpr, columns, size: tl.constexpr):
    """Return the gradient of the normalization's input; add those of gain and bias to `grad_norms` (…, 2, N)."""
    inside = columns < size
    grad_gain, grad_bias = d * normal, d
    if len(d.shape) > 1:
        grad_gain, grad_bias = tl.sum(grad_gain, axis=0), tl.sum(grad_bias, axis=0)
    at = grad_norms + 2 * which * size + columns
    tl.store(at, tl.load(at, mask=inside, other=0.0) + grad_gain, mask=inside)
    tl.store(at + size, tl.load(at + size, mask=inside, other=0.0) + grad_bias, mask=inside)
    tl.debug_barrier()  # the next call may load these sums in other threads

    d = d * tl.load(norms + 2 * which * size + columns, mask=inside, other=0.0)
    mean, along = totals_2(d, d * normal)
    return tl.where(inside, scale * (d - mean / size - normal * (along / size)), 0.0)


@triton.jit
def sum_rows(values, width, columns, here, rows, block: tl.constexpr):
    """Return the sums of columns (K,) of a matrix with some rows of a width, `block` rows at a time, in their order."""
    total = tl.zeros([block, columns.shape[0]], tl.float32)
    for first in range(0, rows, block):
        row = (first + tl.arange(0, block)).to(tl.int64)
        valid = (row < rows)[:, None] & here[None, :]
        total += tl.load(values + (row[:, None] * width + columns[None, :]), valid, 0.0)
    return tl.sum(total, axis=0)
