"""Functions of rows (K, N) and of scalars (K, 1) inside a kernel."""

import torch
import triton
import triton.language as tl

TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)


@triton.jit
def dot(a, b):
    """Return the inner products (K, 1) of the rows."""
    return tl.sum(a * b, axis=1, keep_dims=True)


@triton.jit
def inverse_norm(x):
    """Return 1/‖x‖, or 0 where ‖x‖² is below the smallest normal number or overflows."""
    squared = dot(x, x)
    nonzero = (squared > TINY) & (squared <= LARGEST)
    # correctly rounded: an error in the length of a unit vector makes the product of many rotations less orthogonal
    root = tl.sqrt_rn(tl.where(nonzero, squared, 1.0))
    return tl.where(nonzero, tl.div_rn(tl.full(root.shape, 1.0, tl.float32), root), 0.0)


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
    if config.activation == "relu":
        result = tl.maximum(x, 0.0)
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
    mean = tl.sum(x, axis=1, keep_dims=True) / size
    centred = tl.where((columns < size)[None, :], x - mean, 0.0)
    scale = 1.0 / tl.sqrt_rn(dot(centred, centred) / size + epsilon)
    return centred * scale, scale


@triton.jit
def scale_and_shift(normal, norms, which: tl.constexpr, columns, size: tl.constexpr):
    """Apply gain and bias of the layer normalization of target (0), gate (1) or candidate (2)."""
    inside = columns < size
    gain = tl.load(norms + 2 * which * size + columns, mask=inside, other=0.0)
    bias = tl.load(norms + (2 * which + 1) * size + columns, mask=inside, other=0.0)
    return normal * gain[None, :] + bias[None, :]


@triton.jit
def normalize_backward(d, normal, scale, step, which: tl.constexpr, size: tl.constexpr):
    """Return the gradient of the normalization's input; add those of gain and bias to `step.grad_norms`."""
    inside = step.columns < size
    at = step.grad_norms + 2 * which * size + step.columns
    tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(d * normal, axis=0), mask=inside)
    tl.store(at + size, tl.load(at + size, mask=inside, other=0.0) + tl.sum(d, axis=0), mask=inside)
    tl.debug_barrier()  # the next call may load these sums in other threads

    d = d * tl.load(step.norms + 2 * which * size + step.columns, mask=inside, other=0.0)[None, :]
    mean = tl.sum(d, axis=1, keep_dims=True) / size
    along = dot(d, normal) / size
    return tl.where(inside[None, :], scale * (d - mean - normal * along), 0.0)
