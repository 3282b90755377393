"""The parameters of a state space in the form of the scan and of the products, and their gradients; one launch each.

The scan takes λ; the products take f ⊙ B and κ [Re C, −Im C], so that each is one product of real numbers.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.exponentials import exp_minus_one

BLOCK = tl.constexpr(8)  # complex numbers of the state, or outputs, of a program
COLUMNS = tl.constexpr(64)  # outputs, or rows of a batch, that it reads at once


class Config(NamedTuple):
    """What is fixed when the kernels are compiled."""

    kind: str  # see `gyral.ops.diagonal.layer.discretize`
    states: int  # P
    size: int  # N
    gain: float  # κ


@triton.jit
def _multiply(a, ai, b, bi):
    return a * b - ai * bi, a * bi + ai * b


@triton.jit
def _reciprocal(x, xi):
    squared = x * x + xi * xi
    return x / squared, -xi / squared


@triton.jit
def _discretize(rate, frequency, scale, config: tl.constexpr):
    """Return λ, f, and 1 / Λ of "zoh" or 1 / (1 − ΔΛ/2) of "bilinear", real and imaginary parts, for numbers (K,)."""
    step = tl.exp(scale)
    if config.kind == "bilinear":
        inverse, inversei = _reciprocal(1.0 - 0.5 * step * rate, -0.5 * step * frequency)
        f, fi = step * inverse, step * inversei
        a, ai = _multiply(f, fi, rate, frequency)
        a += 1.0  # λ = 1 + ΔΛ / (1 − ΔΛ/2) keeps more digits
    else:
        if config.kind == "lru":
            growth, angle = -tl.exp(rate), tl.exp(frequency)
        else:
            growth, angle = step * rate, step * frequency
        radius, cosine, half = tl.exp(growth), tl.cos(angle), tl.sin(0.5 * angle)
        a, ai = radius * cosine, radius * tl.sin(angle)
        inverse, inversei = a, ai  # unused
        f, fi = step, 0.0 * step
        if config.kind == "zoh":  # λ − 1 without the loss of digits where λ is close to 1
            inverse, inversei = _reciprocal(rate, frequency)
            f, fi = _multiply(exp_minus_one(growth) * cosine - 2.0 * half * half, ai, inverse, inversei)
    return a, ai, f, fi, inverse, inversei


@triton.jit
def _vector_gradients(rate, frequency, scale, da, dai, df, dfi, config: tl.constexpr):
    """Return the gradients of rate, frequency and scale (K,), given those of λ and f.

    With da + i dai as the gradient of λ, that of z is conj(∂λ/∂z) times it.
    """
    a, ai, f, fi, inverse, inversei = _discretize(rate, frequency, scale, config)
    step = tl.exp(scale)
    if config.kind == "lru":
        d_rate = -tl.exp(rate) * (a * da + ai * dai)
        d_frequency = tl.exp(frequency) * (a * dai - ai * da)
        d_scale = f * df
    elif config.kind == "zoh":
        more, morei = _multiply(inverse, -inversei, df, dfi)  # of λ, through f
        dz, dzi = _multiply(a, -ai, da + more, dai + morei)
        less, lessi = _multiply(f, -fi, more, morei)
        d_rate, d_frequency = step * dz - less, step * dzi - lessi
        d_scale = step * (rate * dz + frequency * dzi)
    else:
        square, squarei = _multiply(inverse, -inversei, inverse, -inversei)
        dz, dzi = _multiply(square, squarei, da + 0.5 * step * df, dai + 0.5 * step * dfi)
        d_rate, d_frequency = step * dz, step * dzi
        d_scale = step * (rate * dz + frequency * dzi) + f * df + fi * dfi
    return d_rate, d_frequency, d_scale


@triton.jit
def _load_vectors(rate, frequency, scale, p, here):
    """Return the vectors at the places p (K,); 1 where there is none, which has no pole."""
    return tl.load(rate + p, here, 1.0), tl.load(frequency + p, here, 1.0), tl.load(scale + p, here, 1.0)


@triton.jit
def forward_parameters(rate, frequency, scale, drive, readout, decay, weight, read, config: tl.constexpr):
    """Write λ (2P,), the weights f ⊙ B (2P, N), and κ [Re C, −Im C] (N, 2P). A program has some rows of B."""
    p = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = p < config.states
    vectors = _load_vectors(rate, frequency, scale, p, here)
    a, ai, f, fi, _, _ = _discretize(vectors[0], vectors[1], vectors[2], config)
    tl.store(decay + p, a, mask=here)
    tl.store(decay + config.states + p, ai, mask=here)
    whole: tl.constexpr = config.states * config.size
    for first in range(0, config.size, COLUMNS):
        n = first + tl.arange(0, COLUMNS)
        valid = here[:, None] & (n < config.size)[None, :]
        at = p[:, None] * config.size + n[None, :]
        b, bi = tl.load(drive + at, valid, 0.0), tl.load(drive + whole + at, valid, 0.0)
        b, bi = _multiply(f[:, None], fi[:, None], b, bi)
        tl.store(weight + at, b, mask=valid)
        tl.store(weight + whole + at, bi, mask=valid)
        at, to = n[None, :] * config.states + p[:, None], n[None, :] * (2 * config.states) + p[:, None]
        c, ci = tl.load(readout + at, valid, 0.0), tl.load(readout + whole + at, valid, 0.0)
        tl.store(read + to, config.gain * c, mask=valid)
        tl.store(read + config.states + to, -config.gain * ci, mask=valid)


@triton.jit
def _sum_rows(sums, row_width, columns, here, rows):
    """Return the sums (K,) of columns of a matrix with some rows, in the order of the rows."""
    total = tl.zeros([COLUMNS, BLOCK], tl.float32)
    for first in range(0, rows, COLUMNS):
        row = (first + tl.arange(0, COLUMNS)).to(tl.int64)
        valid = (row < rows)[:, None] & here[None, :]
        total += tl.load(sums + (row[:, None] * row_width + columns[None, :]), valid, 0.0)
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["rows"])
def backward_parameters(
    rate,
    frequency,
    scale,
    drive,
    grad_weight,
    grad_read,
    decay_sums,
    skip_sums,
    grad_rate,
    grad_frequency,
    grad_scale,
    grad_drive,
    grad_readout,
    grad_skip,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of all parameters, given those of the weights, and sums over the steps of each row.

    Args:
        rate, frequency, scale, drive: As in `forward_parameters`.
        grad_weight, grad_read: (2P, N) and (N, 2P).
        decay_sums, skip_sums: (B, 2P), of the gradient of λ, and (B, N), of that of D.
        grad_rate, grad_frequency, grad_scale, grad_drive, grad_readout, grad_skip: Where the gradients are written.
        rows: B.
    """
    p = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here, output = p < config.states, p < config.size
    tl.store(grad_skip + p, _sum_rows(skip_sums, config.size, p, output, rows), mask=output)
    vectors = _load_vectors(rate, frequency, scale, p, here)
    _, _, f, fi, _, _ = _discretize(vectors[0], vectors[1], vectors[2], config)
    sums = tl.zeros([BLOCK, COLUMNS], tl.float32)
    sumsi = sums
    whole: tl.constexpr = config.states * config.size
    for first in range(0, config.size, COLUMNS):
        n = first + tl.arange(0, COLUMNS)
        valid = here[:, None] & (n < config.size)[None, :]
        at = p[:, None] * config.size + n[None, :]
        d, di = tl.load(grad_weight + at, valid, 0.0), tl.load(grad_weight + whole + at, valid, 0.0)
        b, bi = tl.load(drive + at, valid, 0.0), tl.load(drive + whole + at, valid, 0.0)
        more, morei = _multiply(b, -bi, d.to(tl.float32), di.to(tl.float32))
        sums, sumsi = sums + more, sumsi + morei
        b, bi = _multiply(f[:, None], -fi[:, None], d.to(tl.float32), di.to(tl.float32))
        tl.store(grad_drive + at, b, mask=valid)
        tl.store(grad_drive + whole + at, bi, mask=valid)
        at, to = n[None, :] * (2 * config.states) + p[:, None], n[None, :] * config.states + p[:, None]
        c, ci = tl.load(grad_read + at, valid, 0.0), tl.load(grad_read + config.states + at, valid, 0.0)
        tl.store(grad_readout + to, config.gain * c.to(tl.float32), mask=valid)
        tl.store(grad_readout + whole + to, -config.gain * ci.to(tl.float32), mask=valid)
    da = _sum_rows(decay_sums, 2 * config.states, p, here, rows)
    dai = _sum_rows(decay_sums, 2 * config.states, config.states + p, here, rows)
    d_rate, d_frequency, d_scale = _vector_gradients(
        vectors[0], vectors[1], vectors[2], da, dai, tl.sum(sums, axis=1), tl.sum(sumsi, axis=1), config
    )
    tl.store(grad_rate + p, d_rate, mask=here)
    tl.store(grad_frequency + p, d_frequency, mask=here)
    tl.store(grad_scale + p, d_scale, mask=here)
