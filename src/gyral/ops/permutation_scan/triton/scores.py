"""The kernels of the scores. A program has some columns of all matrices of the dictionary in registers.

It goes through some steps and rows, one after the other, and computes the scores of its columns, (N, J) numbers. The
gradient of the dictionary is a sum over them, which is in registers, too. Tiles (W, D, J) have rows, matrices and
columns in this order: so the compiler gives each thread the entries of all matrices, and the scores need no others.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.permutation_scan.triton.scan import is_start


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    size: int  # N
    matrices: int  # K
    width: int  # N rounded up to a power of 2
    depth: int  # K rounded up to a power of 2
    columns: int  # J, of a program


class Columns(NamedTuple):
    """Values inside a kernel: the columns of a program."""

    matrix: Any  # indices of the matrices (D,)
    row: Any  # indices of rows (W,)
    column: Any  # indices of columns (J,)
    at: Any  # places in the dictionary (W, D, J)
    inside: Any  # whether they exist
    block: Any  # index of these columns among those of all programs
    group: Any  # index of the steps and rows of the program


@triton.jit
def _columns(config: tl.constexpr):
    """Return the columns of this program."""
    blocks: tl.constexpr = (config.size + config.columns - 1) // config.columns
    program = tl.program_id(0)
    block = program % blocks
    matrix, row = tl.arange(0, config.depth), tl.arange(0, config.width)
    column = block * config.columns + tl.arange(0, config.columns)
    at = (matrix[None, :, None] * config.size + row[:, None, None]) * config.size + column[None, None, :]
    inside = (matrix < config.matrices)[None, :, None] & (row < config.size)[:, None, None]
    inside = inside & (column < config.size)[None, None, :]
    return Columns(matrix, row, column, at, inside, block, program // blocks)


@triton.jit
def _scores(selection, entries, place, columns, mask, config: tl.constexpr):
    """Return the scores (W, J) at a place in (T, B), −∞ in rows that do not exist, and the selection (1, D, 1)."""
    at = selection + place * config.matrices + columns.matrix
    selected = tl.load(at, mask=(columns.matrix < config.matrices) & mask, other=0.0)[None, :, None]
    found = tl.sum(selected * entries, axis=1)
    return tl.where((columns.row < config.size)[:, None], found, float("-inf")), selected


@triton.jit(do_not_specialize=["steps", "rows", "share"])
def choose_places(selection, dictionary, places, steps, rows, share, config: tl.constexpr):
    """Write the places to which the numbers go, (T, B, N) int16: in each column the row of the largest score.

    Args:
        selection, dictionary: See `gyral.ops.permutation_scan.naive.permutation_scan`.
        places: (T, B, N), int16.
        share: The number of steps and rows of a program.
    """
    columns = _columns(config)
    entries = tl.load(dictionary + columns.at, mask=columns.inside, other=0.0)
    first, count = columns.group.to(tl.int64) * share, tl.cast(steps, tl.int64) * rows
    for index in range(share):
        place = first + index
        exists = place < count
        scores, _ = _scores(selection, entries, place, columns, exists, config)
        # where a score is NaN, any row may be the largest
        found = tl.minimum(tl.argmax(scores, axis=0), config.size - 1)
        mask = (columns.column < config.size) & exists
        tl.store(places + place * config.size + columns.column, found.to(tl.int16), mask=mask)


@triton.jit
def _load_parts(pointer, place, index, mask, config: tl.constexpr):
    """Return real and imaginary parts of some of the numbers at a place in (T, B) or (B,)."""
    at, mask = pointer + place * (2 * config.size) + index, (index < config.size) & mask
    return tl.load(at, mask=mask, other=0.0), tl.load(at + config.size, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["steps", "rows", "share"])
def backward_scores(
    selection,
    dictionary,
    decay,
    h0,
    lengths,
    starts,
    outputs,
    grad_values,
    grad_selection,
    grad_dictionary,
    steps,
    rows,
    share,
    config: tl.constexpr,
):
    """Write the gradients of the selection, (blocks, T, B, K) of the columns of each program, and of the dictionary.

    The latter are sums over the steps and rows of a program, (groups, K, N, N). The gradient of P_t, taken as that of
    the softmax of each column, is d_t (a_t ⊙ h_{t−1})ᵀ, where `grad_values` has d_t.
    """
    columns = _columns(config)
    entries = tl.load(dictionary + columns.at, mask=columns.inside, other=0.0)
    total = tl.zeros(entries.shape, tl.float32)
    first, count = columns.group.to(tl.int64) * share, tl.cast(steps, tl.int64) * rows
    t, row = (first // rows).to(tl.int32), (first % rows).to(tl.int32)
    for index in range(share):
        place = first + index
        exists = place < count
        # at other places there is no product with the state
        valid = exists & (t < (steps if lengths is None else tl.load(lengths + row, mask=exists, other=0)))
        if starts is not None:
            valid = valid & (is_start(starts, place, exists) == 0)
        scores, selected = _scores(selection, entries, place, columns, valid, config)
        a, ai = _load_parts(decay, place, columns.column, valid, config)
        h, hi = _load_parts(outputs, place - rows, columns.column, valid & (t > 0), config)
        begin, begini = _load_parts(h0, row.to(tl.int64), columns.column, valid & (t == 0), config)
        d, di = _load_parts(grad_values, place, columns.row, valid, config)
        h, hi = h + begin, hi + begini
        scaled, scaledi = a * h - ai * hi, a * hi + ai * h
        outer = d[:, None] * scaled[None, :] + di[:, None] * scaledi[None, :]
        exponentials = tl.exp(scores - tl.max(scores, axis=0)[None, :])
        soft = exponentials / tl.sum(exponentials, axis=0)[None, :]
        of_scores = soft * (outer - tl.sum(soft * outer, axis=0)[None, :])
        of_scores = tl.where(valid, of_scores, 0.0)
        total += selected * of_scores[:, None, :]
        of_selection = tl.sum(tl.sum(of_scores[:, None, :] * entries, axis=2), axis=0)
        to = grad_selection + (columns.block * count + place) * config.matrices + columns.matrix
        tl.store(to, of_selection, mask=(columns.matrix < config.matrices) & exists)
        is_last = row + 1 == rows
        t, row = tl.where(is_last, t + 1, t), tl.where(is_last, 0, row + 1)
    of_group = columns.group.to(tl.int64) * (config.matrices * config.size * config.size)
    tl.store(grad_dictionary + of_group + columns.at, total, mask=columns.inside)
