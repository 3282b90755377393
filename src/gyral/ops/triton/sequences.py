"""Lengths and starts of sequences inside a kernel. T steps, B rows."""

import triton
import triton.language as tl


@triton.jit
def load_lengths(lengths, row, here, steps):
    """Return the length of each row (K,), int64; all have `steps` if `lengths` is None."""
    if lengths is None:
        found = tl.zeros(row.shape, tl.int64) + steps
    else:
        found = tl.load(lengths + row, mask=here, other=0)
    return found


@triton.jit
def load_starts(starts, t, row, rows, valid):
    """Return whether the row (K,) is reset before step t (S,): (S, K), int1, False where not `valid` (S, K).

    `starts` points to (T, B) uint8, or is None, which stands for no reset.
    """
    if starts is None:
        found = tl.zeros(valid.shape, tl.int1)
    else:
        found = tl.load(starts + t.to(tl.int64)[:, None] * rows + row[None, :], mask=valid, other=0) != 0
    return found
