"""Linear recurrences h_t = a_t h_{t−1} + b_t over a tile (S, K): S steps of K numbers, real or complex.

Two steps (a, b) and then (a′, b′) are one step (a′a, a′b + b′), so that a parallel scan gives all states. A mark at a
step means that the state before it counts as zero, even if it is infinite or NaN. The scans run forward in the order of
the rows: for a recurrence that runs backward, the caller reads the steps from the last one on. `reverse=True` of
`tl.associative_scan` has returned wrong results (issue 4362 of Triton).
"""

import triton
import triton.language as tl


@triton.jit
def load_pair(pointer, distance, mask, both: tl.constexpr):
    """Return two numbers that are some distance apart, such as the parts of complex numbers; zeros beyond the mask.

    They are float32, whatever is stored. Unless there are `both`, the second one is the first again.
    """
    one = tl.load(pointer, mask=mask, other=0.0).to(tl.float32)
    other = one
    if both:
        other = tl.load(pointer + distance, mask=mask, other=0.0).to(tl.float32)
    return one, other


@triton.jit
def store_pair(pointer, distance, one, other, mask, both: tl.constexpr):
    """Store a pair in the form that `load_pair` reads."""
    tl.store(pointer, one, mask=mask)
    if both:
        tl.store(pointer + distance, other, mask=mask)


@triton.jit
def _compose(a1, b1, a2, b2):
    return a1 * a2, a2 * b1 + b2


@triton.jit
def _compose_marked(a1, b1, marks1, a2, b2, marks2):
    return a1 * a2, tl.where(marks2 != 0, b2, a2 * b1 + b2), marks1 | marks2


@triton.jit
def _compose_complex(a1, ai1, b1, bi1, a2, ai2, b2, bi2):
    return a1 * a2 - ai1 * ai2, a1 * ai2 + ai1 * a2, a2 * b1 - ai2 * bi1 + b2, a2 * bi1 + ai2 * b1 + bi2


@triton.jit
def _compose_complex_marked(a1, ai1, b1, bi1, marks1, a2, ai2, b2, bi2, marks2):
    a, ai, b, bi = _compose_complex(a1, ai1, b1, bi1, a2, ai2, b2, bi2)
    return a, ai, tl.where(marks2 != 0, b2, b), tl.where(marks2 != 0, bi2, bi), marks1 | marks2


@triton.jit
def scan_tile(a, ai, b, bi, marks, h, hi, is_complex: tl.constexpr):
    """Return the states after all steps of a tile, (S, K) each, real and imaginary parts.

    Args:
        a, ai, b, bi: (S, K), real and imaginary parts. Those of real numbers are not read.
        marks: (S, K), int32, 1 where the state before the step counts as zero, or None.
        h, hi: (K,), the state before the first step.
        is_complex: Whether the numbers are complex.
    """
    begins = (tl.arange(0, b.shape[0]) == 0)[:, None]
    if marks is not None:
        begins = begins & (marks == 0)
    if is_complex:
        b = tl.where(begins, b + (a * h[None, :] - ai * hi[None, :]), b)
        bi = tl.where(begins, bi + (a * hi[None, :] + ai * h[None, :]), bi)
        if marks is None:
            _, _, b, bi = tl.associative_scan((a, ai, b, bi), 0, _compose_complex)
        else:
            _, _, b, bi, _ = tl.associative_scan((a, ai, b, bi, marks), 0, _compose_complex_marked)
    else:
        b = tl.where(begins, b + a * h[None, :], b)
        if marks is None:
            _, b = tl.associative_scan((a, b), 0, _compose)
        else:
            _, b, _ = tl.associative_scan((a, b, marks), 0, _compose_marked)
        bi = b
    return b, bi


@triton.jit
def last_row(x, steps: tl.constexpr):
    """Return the last row (K,) of a tile (S, K) with S = `steps`."""
    return tl.sum(tl.where((tl.arange(0, steps) == steps - 1)[:, None], x, 0.0), axis=0)
