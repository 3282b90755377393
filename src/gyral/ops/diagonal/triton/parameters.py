"""The parameters of a state space in the form of the scan and of the products, and their gradients; one launch each.

The scan takes λ; the products take f ⊙ B and κ [Re C, −Im C], so that each is one product of real numbers.
"""

from typing import NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.discretization import discretize, multiply, vector_gradients
from gyral.ops.triton.rows import sum_rows

BLOCK = tl.constexpr(8)  # complex numbers of the state, or outputs, of a program
COLUMNS = tl.constexpr(64)  # outputs, or rows of a batch, that it reads at once


class Config(NamedTuple):
    """Compile-time constants of the kernels."""

    kind: str  # see `gyral.ops.diagonal.layer.discretize`
    states: int  # P
    size: int  # N
    gain: float  # κ


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
    kind: tl.constexpr = config.kind
    a, ai, f, fi, _, _ = discretize(vectors[0], vectors[1], vectors[2], kind)
    tl.store(decay + p, a, mask=here)
    tl.store(decay + config.states + p, ai, mask=here)
    whole: tl.constexpr = config.states * config.size
    for first in range(0, config.size, COLUMNS):
        n = first + tl.arange(0, COLUMNS)
        valid = here[:, None] & (n < config.size)[None, :]
        at = p[:, None] * config.size + n[None, :]
        b, bi = tl.load(drive + at, valid, 0.0), tl.load(drive + whole + at, valid, 0.0)
        b, bi = multiply(f[:, None], fi[:, None], b, bi)
        tl.store(weight + at, b, mask=valid)
        tl.store(weight + whole + at, bi, mask=valid)
        at, to = n[None, :] * config.states + p[:, None], n[None, :] * (2 * config.states) + p[:, None]
        c, ci = tl.load(readout + at, valid, 0.0), tl.load(readout + whole + at, valid, 0.0)
        tl.store(read + to, config.gain * c, mask=valid)
        tl.store(read + config.states + to, -config.gain * ci, mask=valid)


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
    tl.store(grad_skip + p, sum_rows(skip_sums, config.size, p, output, rows, COLUMNS), mask=output)
    vectors = _load_vectors(rate, frequency, scale, p, here)
    kind: tl.constexpr = config.kind
    _, _, f, fi, _, _ = discretize(vectors[0], vectors[1], vectors[2], kind)
    sums = tl.zeros([BLOCK, COLUMNS], tl.float32)
    sumsi = sums
    whole: tl.constexpr = config.states * config.size
    for first in range(0, config.size, COLUMNS):
        n = first + tl.arange(0, COLUMNS)
        valid = here[:, None] & (n < config.size)[None, :]
        at = p[:, None] * config.size + n[None, :]
        d, di = tl.load(grad_weight + at, valid, 0.0), tl.load(grad_weight + whole + at, valid, 0.0)
        b, bi = tl.load(drive + at, valid, 0.0), tl.load(drive + whole + at, valid, 0.0)
        more, morei = multiply(b, -bi, d.to(tl.float32), di.to(tl.float32))
        sums, sumsi = sums + more, sumsi + morei
        b, bi = multiply(f[:, None], -fi[:, None], d.to(tl.float32), di.to(tl.float32))
        tl.store(grad_drive + at, b, mask=valid)
        tl.store(grad_drive + whole + at, bi, mask=valid)
        at, to = n[None, :] * (2 * config.states) + p[:, None], n[None, :] * config.states + p[:, None]
        c, ci = tl.load(grad_read + at, valid, 0.0), tl.load(grad_read + config.states + at, valid, 0.0)
        tl.store(grad_readout + to, config.gain * c.to(tl.float32), mask=valid)
        tl.store(grad_readout + whole + to, -config.gain * ci.to(tl.float32), mask=valid)
    da = sum_rows(decay_sums, 2 * config.states, p, here, rows, COLUMNS)
    dai = sum_rows(decay_sums, 2 * config.states, config.states + p, here, rows, COLUMNS)
    d_rate, d_frequency, d_scale = vector_gradients(
        vectors[0], vectors[1], vectors[2], da, dai, tl.sum(sums, axis=1), tl.sum(sumsi, axis=1), kind
    )
    tl.store(grad_rate + p, d_rate, mask=here)
    tl.store(grad_frequency + p, d_frequency, mask=here)
    tl.store(grad_scale + p, d_scale, mask=here)
