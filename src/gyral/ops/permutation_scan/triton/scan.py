"""The kernels of the scan, given the places to which numbers go. A program runs a row through all steps.

Registers carry the state, or its gradient. What some steps need is loaded before the steps before them are computed,
which hides the latency of memory.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.rows import add_2
from gyral.ops.triton.scan import load_pair, store_pair


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    size: int  # N
    width: int  # N rounded up to a power of 2
    ahead: int  # steps that are loaded together


class Numbers(NamedTuple):
    """Values inside a kernel: the N complex numbers of a row, and their indices (W,)."""

    index: Any
    here: Any  # whether they exist
    row: Any


@triton.jit
def _numbers(config: tl.constexpr):
    """Return the numbers of this program."""
    index = tl.arange(0, config.width)
    return Numbers(index, index < config.size, tl.program_id(0).to(tl.int64))


@triton.jit
def row_length(lengths, row, steps):
    """Return the length of a row."""
    return steps if lengths is None else tl.load(lengths + row).to(tl.int32)


@triton.jit
def load_complex(pointer, place, numbers, mask, config: tl.constexpr):
    """Return real and imaginary parts (W,) at a place in (T, B) or (B,); zeros beyond the mask ()."""
    at = pointer + place * (2 * config.size) + numbers.index
    return load_pair(at, config.size, numbers.here & mask, True)


@triton.jit
def store_complex(pointer, place, real, imaginary, numbers, mask, config: tl.constexpr):
    """Store what `load_complex` reads."""
    at = pointer + place * (2 * config.size) + numbers.index
    store_pair(at, config.size, real, imaginary, numbers.here & mask, True)


@triton.jit
def is_start(starts, place, mask):
    """Return whether the state is reset at a place in (T, B)."""
    return False if starts is None else tl.load(starts + place, mask=mask, other=0) != 0


@triton.jit
def _load_forward(places, decay, values, starts, t, length, rows, numbers, config: tl.constexpr):
    """Return for some steps from t on: places, parts of decays and values, and starts; tuples."""
    together: tl.constexpr = config.ahead
    found = ()
    for ahead in tl.static_range(together):
        exists, place = t + ahead < length, tl.cast(t + ahead, tl.int64) * rows + numbers.row
        to = tl.load(places + place * config.size + numbers.index, mask=numbers.here & exists, other=0).to(tl.int32)
        a, ai = load_complex(decay, place, numbers, exists, config)
        b, bi = load_complex(values, place, numbers, exists, config)
        found = found + ((to, a, ai, b, bi, is_start(starts, place, exists)),)  # type: ignore[assignment]  # noqa: RUF005
    return found


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_scan(places, decay, values, h0, lengths, starts, outputs, final, steps, rows, config: tl.constexpr):
    """Write the outputs (T, B, 2N), zero beyond the lengths, and the state after the last step (B, 2N).

    Args:
        places: (T, B, N), int16, the places to which P_t sends the numbers.
        decay, values, h0, lengths: See `gyral.ops.permutation_scan.naive.permutation_scan`.
        starts: (T, B) uint8.
    """
    together: tl.constexpr = config.ahead
    numbers = _numbers(config)
    length = row_length(lengths, numbers.row, steps)
    h, hi = load_complex(h0, numbers.row, numbers, True, config)
    later = _load_forward(places, decay, values, starts, 0, length, rows, numbers, config)
    for first in range(0, length, together):
        now = later
        later = _load_forward(places, decay, values, starts, first + together, length, rows, numbers, config)
        for ahead in tl.static_range(together):
            t = first + ahead
            exists = t < length
            to, a, ai, b, bi, started = now[ahead]
            scaled, scaledi = a * h - ai * hi, a * hi + ai * h
            if starts is not None:
                scaled, scaledi = tl.where(started, 0.0, scaled), tl.where(started, 0.0, scaledi)
            goes = (to[:, None] == numbers.index[None, :]) & numbers.here[:, None]
            moved, movedi = tl.reduce(
                (tl.where(goes, scaled[:, None], 0.0), tl.where(goes, scaledi[:, None], 0.0)), 0, add_2
            )
            h, hi = tl.where(exists, moved + b, h), tl.where(exists, movedi + bi, hi)
            place = tl.cast(t, tl.int64) * rows + numbers.row
            store_complex(outputs, place, h, hi, numbers, exists, config)
    zeros = tl.zeros(h.shape, tl.float32)
    for t in range(length, steps):
        store_complex(outputs, tl.cast(t, tl.int64) * rows + numbers.row, zeros, zeros, numbers, True, config)
    store_complex(final, numbers.row, h, hi, numbers, True, config)


@triton.jit
def _load_before(outputs, h0, place, t, rows, numbers, mask, config: tl.constexpr):
    """Return the parts of h_{t−1}, which is h0 for t = 0; zeros beyond the mask ()."""
    h, hi = load_complex(outputs, place - rows, numbers, mask & (t > 0), config)
    first, firsti = load_complex(h0, numbers.row, numbers, mask & (t == 0), config)
    return h + first, hi + firsti


@triton.jit
def _load_backward(
    places, decay, h0, starts, outputs, grad_outputs, t, rows, numbers, config: tl.constexpr
):  # fmt: skip
    """Return for some steps from t back: places, parts of decays, states before and gradients, and starts; tuples."""
    together: tl.constexpr = config.ahead
    found = ()
    for ahead in tl.static_range(together):
        step = t - ahead
        exists, place = step >= 0, tl.cast(step, tl.int64) * rows + numbers.row
        to = tl.load(places + place * config.size + numbers.index, mask=numbers.here & exists, other=0).to(tl.int32)
        a, ai = load_complex(decay, place, numbers, exists, config)
        h, hi = _load_before(outputs, h0, place, step, rows, numbers, exists, config)
        d, di = h, hi
        if grad_outputs is not None:
            d, di = load_complex(grad_outputs, place, numbers, exists, config)
        found = found + ((to, a, ai, h, hi, d, di, is_start(starts, place, exists)),)  # type: ignore[assignment]  # noqa: RUF005
    return found


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_scan(
    places,
    decay,
    h0,
    lengths,
    starts,
    outputs,
    grad_outputs,
    grad_final,
    grad_decay,
    grad_values,
    grad_h0,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of decay, values and h0. `grad_outputs` and `grad_final` may be None.

    That of h_t is that of the values, d_t = dy_t + conj(a_{t+1}) ⊙ P_{t+1}ᵀ d_{t+1}.
    """
    together: tl.constexpr = config.ahead
    numbers = _numbers(config)
    length = row_length(lengths, numbers.row, steps)
    zeros = tl.zeros(numbers.index.shape, tl.float32)
    d, di = zeros, zeros
    if grad_final is not None:
        d, di = load_complex(grad_final, numbers.row, numbers, True, config)
    for t in range(length, steps):
        place = tl.cast(t, tl.int64) * rows + numbers.row
        store_complex(grad_decay, place, zeros, zeros, numbers, True, config)
        store_complex(grad_values, place, zeros, zeros, numbers, True, config)
    later = _load_backward(places, decay, h0, starts, outputs, grad_outputs, length - 1, rows, numbers, config)
    for done in range(0, length, together):
        last = length - 1 - done
        now = later
        later = _load_backward(places, decay, h0, starts, outputs, grad_outputs, last - together, rows, numbers, config)
        for ahead in tl.static_range(together):
            t = last - ahead
            exists, place = t >= 0, tl.cast(t, tl.int64) * rows + numbers.row
            to, a, ai, h, hi, dy, dyi, started = now[ahead]
            if grad_outputs is not None:
                d, di = d + dy, di + dyi
            store_complex(grad_values, place, d, di, numbers, exists, config)
            sent, senti = tl.gather(d, to, 0), tl.gather(di, to, 0)
            if starts is not None:
                sent, senti = tl.where(started, 0.0, sent), tl.where(started, 0.0, senti)
                h, hi = tl.where(started, 0.0, h), tl.where(started, 0.0, hi)
                a, ai = tl.where(started, 0.0, a), tl.where(started, 0.0, ai)
            of_decay, of_decayi = sent * h + senti * hi, senti * h - sent * hi
            store_complex(grad_decay, place, of_decay, of_decayi, numbers, exists, config)
            d = tl.where(exists, sent * a + senti * ai, d)
            di = tl.where(exists, senti * a - sent * ai, di)
    store_complex(grad_h0, numbers.row, d, di, numbers, True, config)
