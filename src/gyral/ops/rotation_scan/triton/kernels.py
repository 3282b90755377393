"""The kernels. A program runs one head of one row through all steps, with R (d, d) in registers.

The backward pass goes from the last step to the first: a rotation is undone exactly, so that R is saved before every
64th step alone. Behind a start R is the identity, whatever it was: there, R before the start is computed again.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from gyral.ops.rotation_scan.naive import CHUNK
from gyral.ops.triton.rows import LARGEST, TINY, dot, totals_2

_CHUNK = tl.constexpr(CHUNK)
_OPPOSITE = tl.constexpr((8 * torch.finfo(torch.float32).eps) ** 2)  # squared norm of the sum of two unit vectors


class Config(NamedTuple):
    """What is fixed when a kernel is compiled."""

    size: int  # N
    heads: int  # H
    width: int  # d
    block: int  # d rounded up to a power of 2
    double_angle: bool


class Vectors(NamedTuple):
    """ε, τ, q of a head at a step, or other vectors of this form, (d,) each."""

    embedded: Any
    target: Any
    query: Any


class Normals(NamedTuple):
    """Values inside a kernel: unit normals of the mirrors, and what their derivatives take."""

    first: Any  # w₁
    second: Any  # w₂
    target: Any  # the direction of τ
    of_embedded: Any  # 1 / ‖ε‖, or 0 where the rotation is the identity
    of_target: Any
    of_total: Any  # 1 / ‖ε̂ + τ̂‖ for the single angle, or 0 if the two are opposite


@triton.jit
def _inverse_norm(squared):
    """Return 1 / √x, correctly rounded roots and quotients: errors of all steps add up in R; 0 for 0."""
    nonzero = (squared > TINY) & (squared <= LARGEST)
    return tl.where(nonzero, tl.div_rn(1.0, tl.sqrt_rn(tl.where(nonzero, squared, 1.0))), 0.0)


@triton.jit
def _unit(x, squared, where):
    """Return x / √squared where the mask is true, else zeros."""
    norm = tl.sqrt_rn(tl.where(where, squared, 1.0))
    return tl.where(where, tl.div_rn(x, tl.zeros(x.shape, tl.float32) + norm), 0.0)


@triton.jit
def _is_number(x):
    """Return whether all numbers of a vector are finite."""
    return tl.sum(tl.where(tl.abs(x) <= LARGEST, 0, 1), axis=0) == 0


@triton.jit
def _load(parts, place, head, config: tl.constexpr):
    """Return ε, τ and q of a head at a step of a row, `place` = t B + row."""
    column = tl.arange(0, config.block)
    unit = head * config.width + column
    mask = (column < config.width) & (unit < config.size)
    at = parts + place * (4 * config.size) + unit
    target = tl.load(at, mask=mask, other=0.0)
    query = tl.load(at + 2 * config.size, mask=mask, other=0.0)
    return Vectors(tl.load(at + 3 * config.size, mask=mask, other=0.0), target, query)


@triton.jit
def _mirrors(vectors, usable, config: tl.constexpr):
    """Return the normals of the two mirrors of a step; zeros where the rotation is the identity."""
    embedded, target = tl.where(usable, vectors.embedded, 0.0), tl.where(usable, vectors.target, 0.0)
    squared, other = totals_2(embedded * embedded, target * target)
    both = (squared > TINY) & (squared <= LARGEST) & (other > TINY) & (other <= LARGEST)
    first, unit = _unit(embedded, squared, both), _unit(target, other, both)
    of_embedded = tl.where(both, _inverse_norm(squared), 0.0)
    of_target = tl.where(both, _inverse_norm(other), 0.0)
    second, of_total = unit, of_target
    if not config.double_angle:
        total = first + unit
        squared = dot(total, total)
        is_opposite = both & (squared < _OPPOSITE)
        column = tl.arange(0, config.block)
        sizes = tl.where(column < config.width, tl.abs(first), LARGEST)
        smallest = tl.min(tl.where(sizes == tl.min(sizes, axis=0), column, config.block), axis=0)
        axis = tl.where(column == smallest, 1.0, 0.0)
        axis -= first * tl.sum(axis * first, axis=0)
        across = _unit(axis, dot(axis, axis), is_opposite)
        differs = both & (squared >= _OPPOSITE)
        second = tl.where(is_opposite, across, _unit(total, squared, differs))
        of_total = tl.where(differs, _inverse_norm(squared), 0.0)
    return Normals(first, second, unit, of_embedded, of_target, of_total)


@triton.jit
def _reflect(memory, normal):
    """Return R (I − 2wwᵀ)."""
    along = tl.sum(memory * normal[None, :], axis=1)
    return memory - (2.0 * along)[:, None] * normal[None, :]


@triton.jit
def _identity(config: tl.constexpr):
    column = tl.arange(0, config.block)
    return tl.where((column[:, None] == column[None, :]) & (column < config.width)[:, None], 1.0, 0.0)


@triton.jit
def _correct(memory, config: tl.constexpr):
    """Return R (3I − RᵀR) / 2, where R RᵀR is the sum of R rᵀ r over the rows r of R."""
    column = tl.arange(0, config.block)
    total = tl.zeros(memory.shape, tl.float32)
    for index in range(config.width):
        row = tl.sum(tl.where((column == index)[:, None], memory, 0.0), axis=0)
        total += tl.sum(memory * row[None, :], axis=1)[:, None] * row[None, :]
    return 1.5 * memory - 0.5 * total


@triton.jit
def _matrix_at(place, config: tl.constexpr):
    """Return offsets (d, d) in (…, d, d) of the matrix with this index, and the mask."""
    column = tl.arange(0, config.block)
    at = place * (config.width * config.width) + column[:, None] * config.width + column[None, :]
    return at, (column < config.width)[:, None] & (column < config.width)[None, :]


@triton.jit
def _starts(starts, t, row, many):
    """Return whether the row is reset before a step; never if `starts` is None."""
    return False if starts is None else tl.load(starts + (many * t + row)) != 0


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_rotations(parts, memory, lengths, starts, candidates, kept, final, steps, rows, config: tl.constexpr):
    """Write ε + R q of all steps (T, B, N) within the lengths, and R after the last step (B, H, d, d).

    Args:
        parts, memory: See `gyral.ops.rotation_scan.naive.rotation_scan`.
        lengths, starts: See `gyral.ops.triton.sequences`.
        kept: (⌈T / 64⌉ + 1, B, H, d, d), where R before every 64th step is written, and the last one; without NaN.
    """
    program = tl.program_id(0).to(tl.int64)
    row, head = program // config.heads, program % config.heads
    many = rows.to(tl.int64)
    matrices = many * config.heads
    length = steps if lengths is None else tl.load(lengths + row).to(tl.int32)
    column = tl.arange(0, config.block)
    unit = head * config.width + column
    has_unit = (column < config.width) & (unit < config.size)
    at, inside = _matrix_at(program, config)
    r = tl.load(memory + at, mask=inside, other=0.0)
    is_spoiled = length < 0  # false
    vectors = _load(parts, row, head, config)
    for begin in range(0, length, _CHUNK):
        if begin > 0:
            r = _correct(r, config)
        own, _ = _matrix_at(matrices * (begin // _CHUNK) + program, config)
        tl.store(kept + own, r, mask=inside)
        for t in range(begin, tl.minimum(begin + _CHUNK, length)):
            # what the next step reads is on its way
            place = many * tl.minimum(t + 1, steps - 1) + row
            following = _load(parts, place, head, config)
            if starts is not None:
                restarts = _starts(starts, t, row, many)
                r = tl.where(restarts, _identity(config), r)
                is_spoiled = is_spoiled & (restarts == 0)
            usable = _is_number(vectors.embedded) & _is_number(vectors.target)
            is_spoiled = is_spoiled | (usable == 0)
            normals = _mirrors(vectors, usable, config)
            r = _reflect(_reflect(r, normals.second), normals.first)
            rotated = tl.sum(r * vectors.query[None, :], axis=1)
            rotated = tl.where(is_spoiled, float("nan"), rotated)
            to = candidates + (many * t + row) * config.size + unit
            embedded = tl.load(parts + ((many * t + row) * 4 + 3) * config.size + unit, mask=has_unit)
            tl.store(to, embedded + rotated, mask=has_unit)
            vectors = following
    last, _ = _matrix_at((length + _CHUNK - 1) // _CHUNK * matrices + program, config)
    tl.store(kept + last, r, mask=inside)
    tl.store(final + at, tl.where(is_spoiled, float("nan"), r), mask=inside)


@triton.jit
def _advance(r, parts, starts, begin, end, row, head, many, config: tl.constexpr):
    """Return R before step `end`, given R before step `begin`."""
    for t in range(begin, end):
        vectors = _load(parts, many * t + row, head, config)
        r = tl.where(_starts(starts, t, row, many), _identity(config), r)
        usable = _is_number(vectors.embedded) & _is_number(vectors.target)
        normals = _mirrors(vectors, usable, config)
        r = _reflect(_reflect(r, normals.second), normals.first)
    return r


@triton.jit
def _through_unit(d, unit, inverse):
    """Return the gradient of x, given that of its direction and 1 / ‖x‖."""
    return (d - unit * dot(d, unit)) * inverse


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_rotations(
    parts,
    lengths,
    starts,
    kept,
    grad_candidates,
    grad_final,
    grad_parts,
    grad_memory,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of τ, q and ε in those of the parts, and that of R before the first step.

    `grad_final` may be None.
    """
    program = tl.program_id(0).to(tl.int64)
    row, head = program // config.heads, program % config.heads
    many = rows.to(tl.int64)
    matrices = many * config.heads
    length = steps if lengths is None else tl.load(lengths + row).to(tl.int32)
    column = tl.arange(0, config.block)
    unit = head * config.width + column
    has_unit = (column < config.width) & (unit < config.size)
    at, inside = _matrix_at(program, config)
    block: tl.constexpr = config.block
    g = tl.zeros([block, block], tl.float32)
    if grad_final is not None:
        g = tl.load(grad_final + at, mask=inside, other=0.0)
    for beyond in range(length, steps):
        after = grad_parts + (many * beyond + row) * (4 * config.size) + unit
        zeros = tl.zeros([block], tl.float32)
        tl.store(after, zeros, mask=has_unit)
        tl.store(after + 2 * config.size, zeros, mask=has_unit)
        tl.store(after + 3 * config.size, zeros, mask=has_unit)
    for back in range(0, (length + _CHUNK - 1) // _CHUNK):
        chunk = (length + _CHUNK - 1) // _CHUNK - 1 - back
        begin = chunk * _CHUNK
        end = tl.minimum(begin + _CHUNK, length)
        where, _ = _matrix_at((chunk + 1) * matrices + program, config)
        r = tl.load(kept + where, mask=inside, other=0.0)
        vectors = _load(parts, many * (end - 1) + row, head, config)
        for index in range(0, end - begin):
            t = end - 1 - index
            place = many * t + row
            following = _load(parts, many * tl.maximum(t - 1, 0) + row, head, config)
            d = tl.load(grad_candidates + place * config.size + unit, mask=has_unit, other=0.0)
            usable = _is_number(vectors.embedded) & _is_number(vectors.target)
            normals = _mirrors(vectors, usable, config)
            # what is no number reaches no earlier step
            clean = tl.where(tl.abs(d) <= LARGEST, d, 0.0)
            query = tl.where(tl.abs(vectors.query) <= LARGEST, vectors.query, 0.0)
            d_query = tl.sum(r * d[:, None], axis=0)
            g += clean[:, None] * query[None, :]
            w = normals.first[None, :]
            along, of_g = tl.sum(r * w, axis=1), tl.sum(g * w, axis=1)
            r -= (2.0 * along)[:, None] * w
            d_first = -2.0 * tl.sum(r * of_g[:, None] - g * along[:, None], axis=0)
            g -= (2.0 * of_g)[:, None] * w
            w = normals.second[None, :]
            along, of_g = tl.sum(r * w, axis=1), tl.sum(g * w, axis=1)
            r -= (2.0 * along)[:, None] * w
            d_second = -2.0 * tl.sum(r * of_g[:, None] - g * along[:, None], axis=0)
            g -= (2.0 * of_g)[:, None] * w
            if not config.double_angle:
                d_second = _through_unit(d_second, normals.second, normals.of_total)
                d_first += d_second
            to = grad_parts + place * (4 * config.size) + unit
            tl.store(to, _through_unit(d_second, normals.target, normals.of_target), mask=has_unit)
            tl.store(to + 2 * config.size, d_query, mask=has_unit)
            own = tl.load(grad_candidates + place * config.size + unit, mask=has_unit, other=0.0)
            d_embedded = own + _through_unit(d_first, normals.first, normals.of_embedded)
            tl.store(to + 3 * config.size, d_embedded, mask=has_unit)
            if starts is not None:
                restarts = _starts(starts, t, row, many)
                g = tl.where(restarts, 0.0, g)
                if restarts & (index + 1 < end - begin):
                    first, _ = _matrix_at(chunk * matrices + program, config)
                    r = tl.load(kept + first, mask=inside, other=0.0)
                    r = _advance(r, parts, starts, begin, t, row, head, many, config)
            vectors = following
    tl.store(grad_memory + at, g, mask=inside)
