"""The functions of the rows of a step, one pair for each kind; `gyral.ops.gated.naive` has the equations.

`step.py` describes arguments and results.
"""

import torch
import triton
import triton.language as tl

from gyral.ops.triton.rows import sigmoid, tanh

# below this size 1/|z|² of a complex number may overflow
SMALLEST = tl.constexpr(torch.finfo(torch.float32).tiny ** 0.4)


@triton.jit
def modrelu(z, bias):
    """Return ReLU(|z| + b) z/|z|; 0 at z = 0."""
    size = tl.abs(z) + bias
    size = tl.where(size < 0, 0.0, size)
    return tl.where(z > 0, size, tl.where(z < 0, -size, z))  # a NaN stays a NaN


@triton.jit
def modrelu_backward(d, z, bias):
    """Return the gradients of z and of the bias."""
    d = tl.where((tl.abs(z) + bias > 0) & (z != 0), d, 0.0)
    return d, tl.where(z > 0, d, -d)


@triton.jit
def lstm(parts, products, cell_state):
    write, forget = sigmoid(parts[0] + products[0]), sigmoid(parts[1] + products[1])
    candidate, out = tanh(parts[2] + products[2]), sigmoid(parts[3] + products[3])
    cell_state = forget * cell_state + write * candidate
    return out * tanh(cell_state), cell_state, (write, forget, candidate, out)


@triton.jit
def lstm_backward(d, dc, saved, cell_state):
    write, forget, candidate, out = saved
    squashed = tanh(forget * cell_state + write * candidate)  # the cell state after the step may include zoneout
    dc += d * out * (1.0 - squashed * squashed)
    d_write, d_forget = dc * candidate * write * (1.0 - write), dc * cell_state * forget * (1.0 - forget)
    d_candidate, d_out = dc * write * (1.0 - candidate * candidate), d * squashed * out * (1.0 - out)
    return (d_write, d_forget, d_candidate, d_out), dc * forget


@triton.jit
def gru(parts, products, hidden, extra, config: tl.constexpr):
    reset, update = sigmoid(parts[0] + products[0]), sigmoid(parts[1] + products[1])
    product = products[2]
    if config.extra > 0:
        product += extra[0]
    candidate = tanh(parts[2] + reset * product)
    return candidate + update * (hidden - candidate), (reset, update, candidate), product


@triton.jit
def gru_backward(d, saved, product, hidden):
    reset, update, candidate = saved
    d_candidate = d * (1.0 - update) * (1.0 - candidate * candidate)
    d_update = d * (hidden - candidate) * update * (1.0 - update)
    d_reset = d_candidate * product * reset * (1.0 - reset)
    return (d_reset, d_update, d_candidate), d_candidate * reset, d * update


@triton.jit
def goru(parts, products, hidden, bias):
    reset, update = sigmoid(parts[0] + products[0]), sigmoid(parts[1] + products[1])
    z = parts[2] + reset * products[2]
    candidate = modrelu(z, bias)
    return candidate + update * (hidden - candidate), (reset, update, z), products[2]


@triton.jit
def goru_backward(d, saved, product, hidden, bias):
    reset, update, z = saved
    dz, d_bias = modrelu_backward(d * (1.0 - update), z, bias)
    d_update = d * (hidden - modrelu(z, bias)) * update * (1.0 - update)
    return (dz * product * reset * (1.0 - reset), d_update, dz), dz * reset, d * update, d_bias


@triton.jit
def complex_modrelu(parts, products, bias):
    x, y = parts[0] + products[0], parts[1] + products[1]
    size = tl.sqrt_rn(x * x + y * y)
    scale = 1.0 + tl.where(size > SMALLEST, bias / tl.where(size > SMALLEST, size, 1.0), 0.0)
    scale = tl.where(scale < 0, 0.0, scale)
    return (x * scale, y * scale), (x, y)


@triton.jit
def complex_modrelu_backward(d, saved, bias):
    dx, dy = d
    x, y = saved
    size = tl.sqrt_rn(x * x + y * y)
    inverse = tl.where(size > SMALLEST, 1.0 / tl.where(size > SMALLEST, size, 1.0), 0.0)
    scale = 1.0 + bias * inverse
    active = scale > 0
    u, v = x * inverse, y * inverse
    along = tl.where(active, dx * u + dy * v, 0.0)
    across = along * bias * inverse
    scale = tl.where(active, scale, 0.0)
    return (scale * dx - across * u, scale * dy - across * v), along
