"""What the kernels of fast weights and of WeiNet share: their settings, and how they read and write vectors."""

from typing import NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.rows import normalize, totals_2


class Config(NamedTuple):
    """Compile-time settings of a kernel.

    Attributes:
        size: N.
        block: N, rounded up to a power of 2.
        chunk: Steps after which A is stored for the backward pass.
        on_chip: Whether A stays in registers over the steps of the forward pass.
        resident: Whether all matrices stay in registers over the steps. If not, A does forward, and what else does not
            fit is read in parts.
        lines: Rows of a part of a matrix that is read at once.
        zoneout: "none", "mask" or "probability".
        activation: Name of the activation function f of fast weights.
        inner_steps: S of fast weights.
    """

    size: int
    block: int
    chunk: int
    on_chip: bool
    resident: bool
    lines: int
    zoneout: str
    activation: str
    inner_steps: int


@triton.jit
def load_vector(tensor, index, columns, valid, config: tl.constexpr):
    """Return row `index` of a tensor (…, N), zero where not `valid`; None stands for zeros."""
    vector = tl.zeros(columns.shape, tl.float32)
    if tensor is not None:
        vector = tl.load(tensor + index * config.size + columns, mask=valid, other=0.0)
    return vector


@triton.jit
def zeros_of_columns(matrix, columns, config: tl.constexpr):
    """Return zeros (N,) whose elements are in the threads of the columns of a matrix, given one in memory.

    The compiler gives a sum with them this layout, in which each warp has whole rows: their sums need no barrier.
    """
    lines: tl.constexpr = config.lines
    line = tl.arange(0, lines)[:, None]
    inside = (line < config.size) & (columns < config.size)[None, :]
    tile = tl.load(matrix + line * config.size + columns[None, :], mask=inside, other=0.0)
    return tl.where(tl.sum(tile, axis=0) < float("-inf"), 1.0, 0.0)


@triton.jit
def copy(source, offset, target, columns, config: tl.constexpr):
    """Write a matrix (N, N), `offset` behind `source` in memory, to `target`; zeros if `source` is None."""
    size: tl.constexpr = config.size
    lines: tl.constexpr = config.lines
    for start in range(0, size, lines):
        line = start + tl.arange(0, lines)[:, None]
        at, inside = line * size + columns[None, :], (line < size) & (columns < size)[None, :]
        tile = tl.zeros([lines, columns.shape[0]], tl.float32)
        if source is not None:
            tile = tl.load(source + offset + at, mask=inside, other=0.0)
        tl.store(target + at, tile, mask=inside)


@triton.jit
def load_start(starts, index):
    """Return whether the row is reset before a step."""
    started = index < 0
    if starts is not None:
        started = tl.load(starts + index) != 0
    return started


@triton.jit
def load_hidden(hidden, outputs, index, row, batch, started, columns, valid, config: tl.constexpr):
    """Return the hidden vector before the step with that index among all rows of all steps."""
    vector = tl.load(outputs + (index - batch) * config.size + columns, mask=valid & (index >= batch), other=0.0)
    first = tl.load(hidden + row * config.size + columns, mask=valid & (index < batch), other=0.0)
    return tl.where(started, 0.0, tl.where(index < batch, first, vector))


@triton.jit
def load_keep(keep, keep_probability, index, columns, valid, config: tl.constexpr):
    """Return the zoneout factor of the old hidden vector: the mask, or its probability."""
    if config.zoneout == "mask":
        kept = tl.load(keep + index * config.size + columns, mask=valid, other=0.0)
    else:
        kept = keep_probability
    return kept


@triton.jit
def add_norm_backward(d, normal, scale, gain, grad_gain, grad_bias, columns, size: tl.constexpr):
    """Return the gradient of the normalization's input, and the sums of the gradients of gain and bias with its own."""
    grad_gain += d * normal
    grad_bias += d
    d *= gain
    mean, along = totals_2(d, d * normal)
    d = tl.where(columns < size, scale * (d - mean / size - normal * (along / size)), 0.0)
    return d, grad_gain, grad_bias


@triton.jit
def normalized(x, gain, bias, epsilon, columns, size: tl.constexpr):
    """Return the layer normalization of x, x with mean 0 and variance 1, and the reciprocal standard deviation."""
    normal, scale = normalize(x, epsilon, columns, size)
    return normal * gain + bias, normal, scale


@triton.jit
def product(matrix, vector, rows, reaches, columns, config: tl.constexpr):
    """Return Mᵀ v (N,) of a matrix (K, N) and a vector (K,) in memory, K = `rows`, once all threads have stored v.

    A matrix that does not reach counts as zeros, and is not read.
    """
    tl.debug_barrier()
    size: tl.constexpr = config.size
    lines: tl.constexpr = config.lines
    sums = tl.zeros([lines, columns.shape[0]], tl.float32)
    for start in range(0, rows, lines):
        line = start + tl.arange(0, lines)[:, None]
        inside = (line < rows) & (columns < size)[None, :] & reaches
        tile = tl.load(matrix + line * size + columns[None, :], mask=inside, other=0.0)
        sums += tile * tl.load(vector + line, mask=line < rows, other=0.0)
    return tl.sum(sums, axis=0)
