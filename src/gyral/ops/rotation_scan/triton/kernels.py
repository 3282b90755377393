"""The kernels.

One computes the mirrors of all steps at once, with a program for each head of a step of a row. Another one runs a head
of a row through all steps in one program, with R (d, d) in registers. The backward pass goes from the last step to the
first: a rotation is undone exactly, so that R is saved before every 64th step alone. Behind a start R is the identity,
whatever it was: there, R before the start is computed again.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from gyral.ops.rotation_scan.naive import CHUNK
from gyral.ops.triton.rows import LARGEST, TINY, add_3, dot, totals_2

_CHUNK = tl.constexpr(CHUNK)
_OPPOSITE = tl.constexpr((8 * torch.finfo(torch.float32).eps) ** 2)  # squared norm of the sum of two unit vectors


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

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


@triton.jit(do_not_specialize=["rows"])
def forward_mirrors(parts, normals, usable, rows, config: tl.constexpr):
    """Write the normals [w₁; w₂] (T, B, H, 2, d), and whether ε and τ are finite (T, B, H) uint8."""
    program = tl.program_id(0).to(tl.int64)
    vectors = _load(parts, program // config.heads, program % config.heads, config)
    is_usable = _is_number(vectors.embedded) & _is_number(vectors.target)
    found = _mirrors(vectors, is_usable, config)
    column = tl.arange(0, config.block)
    at = normals + program * (2 * config.width) + column
    tl.store(at, found.first, mask=column < config.width)
    tl.store(at + config.width, found.second, mask=column < config.width)
    tl.store(usable + program, is_usable.to(tl.uint8))


@triton.jit
def _through_unit(d, unit, inverse):
    """Return the gradient of x, given that of its direction and 1 / ‖x‖."""
    return (d - unit * dot(d, unit)) * inverse


@triton.jit(do_not_specialize=["rows"])
def backward_mirrors(parts, lengths, grad_normals, grad_candidates, grad_parts, rows, config: tl.constexpr):
    """Write the gradients of τ and ε, and zeros beyond the lengths, where that of q is zero, too."""
    program = tl.program_id(0).to(tl.int64)
    place, head = program // config.heads, program % config.heads
    many = rows.to(tl.int64)
    inside = place >= 0
    if lengths is not None:
        inside = place // many < tl.load(lengths + place % many)
    vectors = _load(parts, place, head, config)
    usable = _is_number(vectors.embedded) & _is_number(vectors.target)
    normals = _mirrors(vectors, usable, config)
    column = tl.arange(0, config.block)
    unit = head * config.width + column
    has_unit = (column < config.width) & (unit < config.size)
    at = grad_normals + program * (2 * config.width) + column
    d_first = tl.load(at, mask=(column < config.width) & inside, other=0.0)
    d_second = tl.load(at + config.width, mask=(column < config.width) & inside, other=0.0)
    if not config.double_angle:
        d_second = _through_unit(d_second, normals.second, normals.of_total)
        d_first += d_second
    d = tl.load(grad_candidates + place * config.size + unit, mask=has_unit & inside, other=0.0)
    d += _through_unit(d_first, normals.first, normals.of_embedded)
    to = grad_parts + place * (4 * config.size) + unit
    tl.store(to, _through_unit(d_second, normals.target, normals.of_target), mask=has_unit)
    tl.store(to + 3 * config.size, d, mask=has_unit)
    tl.store(to + 2 * config.size, tl.zeros(column.shape, tl.float32), mask=has_unit & (inside == 0))


@triton.jit
def _step(normals, place, program, config: tl.constexpr):
    """Return w₁ and w₂ (d,) of a step of a row, `place` = t B + row."""
    column = tl.arange(0, config.block)
    at = normals + (place * config.heads + program % config.heads) * (2 * config.width) + column
    first = tl.load(at, mask=column < config.width, other=0.0)
    return first, tl.load(at + config.width, mask=column < config.width, other=0.0)


@triton.jit
def _load_part(tensor, at, config: tl.constexpr):
    """Return the numbers (d,) of a head from offset `at` on, that of its first unit; zeros where there is no unit."""
    column = tl.arange(0, config.block)
    head = tl.program_id(0) % config.heads
    mask = (column < config.width) & (head * config.width + column < config.size)
    return tl.load(tensor + at + column, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_rotations(
    parts, memory, normals, usable, lengths, starts, candidates, kept, final, steps, rows, config: tl.constexpr
):
    """Write ε + R q of all steps (T, B, N) within the lengths, and R after the last step (B, H, d, d).

    Args:
        parts, memory: See `gyral.ops.rotation_scan.naive.rotation_scan`.
        normals, usable: See `forward_mirrors`.
        lengths, starts: See `gyral.ops.triton.sequences`.
        kept: (⌈T / 64⌉ + 1, B, H, d, d), where R before every 64th step is written, and the last one; without NaN.
    """
    program = tl.program_id(0).to(tl.int64)
    row, head = program // config.heads, program % config.heads
    many = rows.to(tl.int64)
    matrices = many * config.heads
    length = steps if lengths is None else tl.load(lengths + row).to(tl.int32)
    column = tl.arange(0, config.block)
    offset = head * config.width
    has_unit = (column < config.width) & (offset + column < config.size)
    at, inside = _matrix_at(program, config)
    r = tl.load(memory + at, mask=inside, other=0.0)
    is_spoiled = length < 0  # false
    for begin in range(0, length, _CHUNK):
        if begin > 0:
            r = _correct(r, config)
        own, _ = _matrix_at(matrices * (begin // _CHUNK) + program, config)
        tl.store(kept + own, r, mask=inside)
        earliest = many * begin + row
        w1, w2 = _step(normals, earliest, program, config)
        query = _load_part(parts, earliest * (4 * config.size) + 2 * config.size + offset, config)
        embedded = _load_part(parts, earliest * (4 * config.size) + 3 * config.size + offset, config)
        for t in range(begin, tl.minimum(begin + _CHUNK, length)):
            place = many * t + row
            following = many * tl.minimum(t + 1, steps - 1) + row  # what the next step reads is on its way
            next1, next2 = _step(normals, following, program, config)
            next_query = _load_part(parts, following * (4 * config.size) + 2 * config.size + offset, config)
            next_embedded = _load_part(parts, following * (4 * config.size) + 3 * config.size + offset, config)
            if starts is not None:
                restarts = _starts(starts, t, row, many)
                r = tl.where(restarts, _identity(config), r)
                is_spoiled = is_spoiled & (restarts == 0)
            is_spoiled = is_spoiled | (tl.load(usable + place * config.heads + head) == 0)
            r = _reflect(_reflect(r, w2), w1)
            rotated = tl.where(is_spoiled, float("nan"), tl.sum(r * query[None, :], axis=1))
            tl.store(candidates + place * config.size + offset + column, embedded + rotated, mask=has_unit)
            w1, w2, query, embedded = next1, next2, next_query, next_embedded
    last, _ = _matrix_at((length + _CHUNK - 1) // _CHUNK * matrices + program, config)
    tl.store(kept + last, r, mask=inside)
    tl.store(final + at, tl.where(is_spoiled, float("nan"), r), mask=inside)


@triton.jit
def _advance(r, normals, starts, begin, end, program, row, many, config: tl.constexpr):
    """Return R before step `end`, given R before step `begin`."""
    for t in range(begin, end):
        r = tl.where(_starts(starts, t, row, many), _identity(config), r)
        first, second = _step(normals, many * t + row, program, config)
        r = _reflect(_reflect(r, second), first)
    return r


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_rotations(
    parts,
    normals,
    lengths,
    starts,
    kept,
    grad_candidates,
    grad_final,
    grad_normals,
    grad_parts,
    grad_memory,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of the normals, of q within the lengths, and of R before the first step.

    `grad_final` may be None.
    """
    program = tl.program_id(0).to(tl.int64)
    row, head = program // config.heads, program % config.heads
    many = rows.to(tl.int64)
    matrices = many * config.heads
    length = steps if lengths is None else tl.load(lengths + row).to(tl.int32)
    column = tl.arange(0, config.block)
    offset = head * config.width
    has_unit = (column < config.width) & (offset + column < config.size)
    at, inside = _matrix_at(program, config)
    block: tl.constexpr = config.block
    g = tl.zeros([block, block], tl.float32)
    if grad_final is not None:
        g = tl.load(grad_final + at, mask=inside, other=0.0)
    for back in range(0, (length + _CHUNK - 1) // _CHUNK):
        chunk = (length + _CHUNK - 1) // _CHUNK - 1 - back
        begin = chunk * _CHUNK
        end = tl.minimum(begin + _CHUNK, length)
        where, _ = _matrix_at((chunk + 1) * matrices + program, config)
        r = tl.load(kept + where, mask=inside, other=0.0)
        latest = many * (end - 1) + row
        w1, w2 = _step(normals, latest, program, config)
        query = _load_part(parts, latest * (4 * config.size) + 2 * config.size + offset, config)
        d = _load_part(grad_candidates, latest * config.size + offset, config)
        for index in range(0, end - begin):
            t = end - 1 - index
            place = many * t + row
            following = many * tl.maximum(t - 1, 0) + row  # what the next step reads is on its way
            next1, next2 = _step(normals, following, program, config)
            next_query = _load_part(parts, following * (4 * config.size) + 2 * config.size + offset, config)
            next_d = _load_part(grad_candidates, following * config.size + offset, config)
            # NaN does not reach earlier steps
            clean = tl.where(tl.abs(d) <= LARGEST, d, 0.0)
            query = tl.where(tl.abs(query) <= LARGEST, query, 0.0)
            of_query = r * d[:, None]
            g += clean[:, None] * query[None, :]
            along, of_g = tl.sum(r * w1[None, :], axis=1), tl.sum(g * w1[None, :], axis=1)
            r -= (2.0 * along)[:, None] * w1[None, :]
            of_first = r * of_g[:, None] - g * along[:, None]
            g -= (2.0 * of_g)[:, None] * w1[None, :]
            along, of_g = tl.sum(r * w2[None, :], axis=1), tl.sum(g * w2[None, :], axis=1)
            r -= (2.0 * along)[:, None] * w2[None, :]
            of_second = r * of_g[:, None] - g * along[:, None]
            g -= (2.0 * of_g)[:, None] * w2[None, :]
            d_query, d_first, d_second = tl.reduce((of_query, of_first, of_second), 0, add_3)
            tl.store(grad_parts + place * (4 * config.size) + 2 * config.size + offset + column, d_query, mask=has_unit)
            to = grad_normals + (place * config.heads + head) * (2 * config.width) + column
            tl.store(to, -2.0 * d_first, mask=column < config.width)
            tl.store(to + config.width, -2.0 * d_second, mask=column < config.width)
            if starts is not None:
                restarts = _starts(starts, t, row, many)
                g = tl.where(restarts, 0.0, g)
                if restarts & (index + 1 < end - begin):
                    first, _ = _matrix_at(chunk * matrices + program, config)
                    r = tl.load(kept + first, mask=inside, other=0.0)
                    r = _advance(r, normals, starts, begin, t, program, row, many, config)
            w1, w2, query, d = next1, next2, next_query, next_d
    tl.store(grad_memory + at, g, mask=inside)
