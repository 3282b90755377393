"""Lengths and starts of sequences inside a kernel. T steps, B rows."""

import triton
import triton.language as tl


@triton.jit
def load_lengths(lengths, row, here, steps):
    """Return the length of each row (K,), int64; all have `steps` if `lengths` is None."""
    every = tl.zeros(row.shape, tl.int64) + steps
    return every if lengths is None else tl.load(lengths + row, mask=here, other=0)


@triton.jit
def load_starts(starts, t, row, rows, valid):
    """Return whether the row (K,) is reset before step t (S,): (S, K), int1, False where not `valid` (S, K).

    `starts` points to (T, B) uint8, or is None, which stands for no reset.
    """
    none = tl.zeros(valid.shape, tl.int1)
    place = t.to(tl.int64)[:, None] * rows + row[None, :]
    return none if starts is None else tl.load(starts + place, mask=valid, other=0) != 0


@triton.jit
def steps_of(t, row, length, starts, steps, rows):
    """Return places in (T, B) of the steps t (L,) of a row, whether they exist and have inputs, and starts, (L, 1)."""
    exists = ((t >= 0) & (t < steps))[:, None]
    valid = exists & (t[:, None] < length[None, :])
    return t.to(tl.int64)[:, None] * rows + row[None, :], exists, valid, load_starts(starts, t, row, rows, valid)
