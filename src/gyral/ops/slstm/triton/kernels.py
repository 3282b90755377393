"""The kernels. A program runs a head of a row through all steps.

Registers have the state and the recurrent weights of all gates, or of two; those of the others are read in each step, a
tile of rows after the other. What the next step reads is loaded before this one is computed.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.slstm.triton.step import Gates, State, advance, advance_backward, reset
from gyral.ops.triton.rows import add_4


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    size: int  # N
    heads: int  # H
    width: int  # d
    block: int  # d rounded up to a power of 2
    resident: bool  # whether registers have the weights of all gates, not only those of i and f
    tile: int  # rows of the other weights that are read at once
    lines: int  # the number of warps, at least 4
    lowest: float  # m before the first step


class Unit(NamedTuple):
    """Values inside a kernel: the units (d,) of a head of a row."""

    column: Any
    at: Any  # their indices in (N,)
    inside: Any  # whether they exist
    row: Any
    rows: Any  # B


@triton.jit
def _unit(rows, config: tl.constexpr):
    """Return the units of this program, and the index of its head."""
    program = tl.program_id(0).to(tl.int64)
    column, head = tl.arange(0, config.block), program % config.heads
    many = rows.to(tl.int64)
    return Unit(column, head * config.width + column, column < config.width, program // config.heads, many), head


@triton.jit
def _place(unit, t):
    """Return the index of step t of the row in (T, B)."""
    return tl.cast(t, tl.int64) * unit.rows + unit.row


@triton.jit
def _load(values, place, part: tl.constexpr, parts: tl.constexpr, unit, mask, other, config: tl.constexpr):
    """Return a part (d,) of the values (…, parts N) at a place; `other` beyond the mask."""
    at = values + (place * (parts * config.size) + part * config.size + unit.at)
    return tl.load(at, mask=unit.inside & mask, other=other)


@triton.jit
def _store(value, values, place, unit, config: tl.constexpr):
    """Store (d,) in the values (…, N) at a place, as a row of a tile; see `_store_parts`."""
    lines: tl.constexpr = config.lines
    line = tl.arange(0, lines)[:, None]
    at = values + (place * config.size + 0 * line + unit.at[None, :])
    tile = tl.where(line == 0, value[None, :], 0.0)
    tl.store(at, tile, mask=unit.inside[None, :] & (line == 0))


@triton.jit
def _load_gates(sums, place, unit, mask, config: tl.constexpr):
    """Return the sums of the gates at a place; zeros beyond the mask."""
    return Gates(
        _load(sums, place, 0, 4, unit, mask, 0.0, config),
        _load(sums, place, 1, 4, unit, mask, 0.0, config),
        _load(sums, place, 2, 4, unit, mask, 0.0, config),
        _load(sums, place, 3, 4, unit, mask, 0.0, config),
    )


@triton.jit
def _store_parts(one, two, three, four, values, place, parts: tl.constexpr, unit, config: tl.constexpr):
    """Store parts (d,) of the values (…, parts N) at a place, of which the fourth one need not exist.

    They are rows of a tile with a row for each warp. Each warp has all elements of all parts, and stores some: in
    vectors, the compiler would first exchange the elements between warps, with two barriers for each part.
    """
    lines: tl.constexpr = config.lines
    line = tl.arange(0, lines)[:, None]
    tile = tl.where(line == 0, one[None, :], tl.where(line == 1, two[None, :], three[None, :]))
    if parts > 3:
        tile = tl.where(line == 3, four[None, :], tile)
    at = values + (place * (parts * config.size) + line * config.size + unit.at[None, :])
    tl.store(at, tile, mask=unit.inside[None, :] & (line < parts))


@triton.jit
def _store_gates(gates, sums, place, unit, config: tl.constexpr):
    _store_parts(gates.write, gates.forget, gates.candidate, gates.output, sums, place, 4, unit, config)


@triton.jit
def _first_state(cell, normalizer, scale, unit, config: tl.constexpr):
    """Return the state before the first step. The normalizer of a unit that does not exist is 1: it divides."""
    return State(
        _load(cell, unit.row, 0, 1, unit, True, 0.0, config),
        _load(normalizer, unit.row, 0, 1, unit, True, 1.0, config),
        _load(scale, unit.row, 0, 1, unit, True, 0.0, config),
    )


@triton.jit
def _load_state(states, place, unit, mask, config: tl.constexpr):
    """Return the state after a step."""
    return State(
        _load(states, place, 0, 3, unit, mask, 0.0, config),
        _load(states, place, 1, 3, unit, mask, 1.0, config),
        _load(states, place, 2, 3, unit, mask, 0.0, config),
    )


@triton.jit
def _rows(weight, start, column, rows: tl.constexpr, config: tl.constexpr):
    """Return rows (rows, d) of a block (d, d) from row `start` on."""
    row = start + tl.arange(0, rows)[:, None]
    inside = (row < config.width) & (column < config.width)[None, :]
    return tl.load(weight + row * config.width + column[None, :], mask=inside, other=0.0)


@triton.jit
def _resident(weight, column, config: tl.constexpr):
    """Return the blocks (d, d) of the gates that are in registers, in the place of others only the first row."""
    area: tl.constexpr = config.width * config.width
    others: tl.constexpr = config.block if config.resident else 1
    return Gates(
        _rows(weight, 0, column, config.block, config),
        _rows(weight + area, 0, column, config.block, config),
        _rows(weight + 2 * area, 0, column, others, config),
        _rows(weight + 3 * area, 0, column, others, config),
    )


@triton.jit
def _add_rows(x, groups: tl.constexpr):
    """Return the sums (groups, N) of every `groups`th row of x (K, N): threads need not exchange any for them."""
    return tl.sum(tl.reshape(x, [x.shape[0] // groups, groups, x.shape[1]]), axis=0)


@triton.jit
def _forward_products(h, before, mask, own, weight, column, config: tl.constexpr):
    """Return the products of the blocks of R with h, (d,) each.

    Args:
        h: (d,), for the weights in registers.
        before: Pointer to h (d,), for the others.
        mask: Whether h counts, else zeros.
        own: The weights in registers, rows of input units.
        weight: Pointer to the weights (4, d, d).
        column: The units.
    """
    area: tl.constexpr = config.width * config.width
    tile: tl.constexpr = config.tile
    block: tl.constexpr = config.block
    write, forget = _add_rows(h[:, None] * own.write, tile), _add_rows(h[:, None] * own.forget, tile)
    if config.resident:
        values, output = _add_rows(h[:, None] * own.candidate, tile), _add_rows(h[:, None] * own.output, tile)
    else:
        values, output = tl.zeros([tile, block], tl.float32), tl.zeros([tile, block], tl.float32)
        tl.debug_barrier()  # all threads have stored their elements of h
        for start in range(0, config.width, tile):
            row = start + tl.arange(0, tile)
            x = tl.load(before + row, mask=(row < config.width) & mask, other=0.0)[:, None]
            values += x * _rows(weight + 2 * area, start, column, tile, config)
            output += x * _rows(weight + 3 * area, start, column, tile, config)
    write, forget, values, output = tl.reduce((write, forget, values, output), 0, add_4)
    return Gates(write, forget, values, output)


@triton.jit
def _backward_products(d, gradients, own, weight, column, config: tl.constexpr):
    """Return the gradient of h (d,) through the sums.

    Args:
        d: The gradients of the sums, for the weights in registers.
        gradients: Pointer to them in (4, N), for the others.
        own: The weights in registers, rows of output units.
        weight: Pointer to the weights (4, d, d).
        column: The units.
    """
    area: tl.constexpr = config.width * config.width
    tile: tl.constexpr = config.tile
    products = d.write[:, None] * own.write + d.forget[:, None] * own.forget
    if config.resident:
        products += d.candidate[:, None] * own.candidate + d.output[:, None] * own.output
    total = _add_rows(products, tile)
    if not config.resident:
        tl.debug_barrier()  # all threads have stored their elements of the gradients
        for start in range(0, config.width, tile):
            row = start + tl.arange(0, tile)
            for gate in tl.static_range(2, 4):
                x = tl.load(gradients + gate * config.size + row, mask=row < config.width, other=0.0)
                total += x[:, None] * _rows(weight + gate * area, start, column, tile, config)
    return tl.sum(total, axis=0)


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_slstm(
    projected, weight, hidden, cell, normalizer, scale, lengths, starts,
    outputs, final_hidden, final_cell, final_normalizer, final_scale, sums, states,
    steps, rows, config: tl.constexpr,
):  # fmt: skip
    """Run all steps.

    Args:
        projected, hidden, cell, normalizer, scale: See `gyral.ops.slstm.naive.slstm`.
        weight: (H, 4, d, d), rows of input units: sums over these are then rows of outputs.
        lengths, starts: See `gyral.ops.triton.sequences`.
        outputs, final_hidden, final_cell, final_normalizer, final_scale: The results.
        sums, states: (T, B, 4N) and (T, B, 3N), the sums of the gates, and c, n and m after each step.
    """
    unit, head = _unit(rows, config)
    column = unit.column
    length = steps if lengths is None else tl.load(lengths + unit.row).to(tl.int32)
    weight += head * (4 * config.width * config.width)
    own = _resident(weight, column, config)
    # Zeros (d,) whose elements are in the threads of the columns of a matrix. The compiler gives a sum with them this
    # layout, in which each warp has whole rows: their sums need no barrier.
    zeros = tl.where(tl.sum(_rows(weight, 0, column, config.tile, config), axis=0) < float("-inf"), 1.0, 0.0)
    h = _load(hidden, unit.row, 0, 1, unit, True, 0.0, config) + zeros
    state = _first_state(cell, normalizer, scale, unit, config)
    state = State(state.cell + zeros, state.normalizer + zeros, state.scale + zeros)
    coming = _load_gates(projected, unit.row, unit, True, config)
    has_started = False
    is_coming = False
    if starts is not None:
        is_coming = tl.load(starts + unit.row) != 0

    for t in range(length):
        place = _place(unit, t)
        gates = coming
        ahead = t + 1 < length
        coming = _load_gates(projected, place + unit.rows, unit, ahead, config)
        if starts is not None:
            has_started = is_coming
            is_coming = tl.load(starts + place + unit.rows, mask=ahead, other=0) != 0
            h = tl.where(has_started, 0.0, h)
            state = reset(state, has_started, config.lowest)
        before = outputs + ((place - unit.rows) * config.size + head * config.width)
        if t == 0:
            before = hidden + (unit.row * config.size + head * config.width)
        recurrent = _forward_products(h, before, has_started == 0, own, weight, column, config)
        added = Gates(
            gates.write + zeros + recurrent.write,
            gates.forget + zeros + recurrent.forget,
            gates.candidate + zeros + recurrent.candidate,
            gates.output + zeros + recurrent.output,
        )
        _store_gates(added, sums, place, unit, config)
        h, state = advance(added, state)
        _store(h, outputs, place, unit, config)
        _store_parts(state.cell, state.normalizer, state.scale, h, states, place, 3, unit, config)

    _store(h, final_hidden, unit.row, unit, config)
    _store(state.cell, final_cell, unit.row, unit, config)
    _store(state.normalizer, final_normalizer, unit.row, unit, config)
    _store(state.scale, final_scale, unit.row, unit, config)
    for t in range(length, steps):
        _store(tl.zeros(unit.column.shape, tl.float32), outputs, _place(unit, t), unit, config)


@triton.jit
def _load_step(sums, states, first, grad_outputs, t, unit, config: tl.constexpr):
    """Return the sums of step t, the state before it, and the gradient of its output."""
    place = _place(unit, t)
    gates = _load_gates(sums, place, unit, t >= 0, config)
    before = _load_state(states, place - unit.rows, unit, t > 0, config)
    before = State(
        tl.where(t == 0, first.cell, before.cell),
        tl.where(t == 0, first.normalizer, before.normalizer),
        tl.where(t == 0, first.scale, before.scale),
    )
    d = tl.zeros(unit.column.shape, tl.float32)
    if grad_outputs is not None:
        d = _load(grad_outputs, place, 0, 1, unit, t >= 0, 0.0, config)
    return gates, before, d


@triton.jit
def _load_final(grad, unit, config: tl.constexpr):
    """Return the gradient of a leaf of the final state, zeros if it is None."""
    found = tl.zeros(unit.column.shape, tl.float32)
    if grad is not None:
        found = _load(grad, unit.row, 0, 1, unit, True, 0.0, config)
    return found


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_slstm(
    sums, weight, cell, normalizer, scale, lengths, starts, states,
    grad_outputs, grad_final_hidden, grad_final_cell, grad_final_normalizer, grad_final_scale,
    grad_hidden, grad_cell, grad_normalizer, grad_scale,
    steps, rows, config: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse, and overwrite the sums with their gradients, zeros beyond the lengths.

    The weights (H, 4, d, d) have rows of output units. Gradients of results may be None. `grad_hidden` to `grad_scale`
    are those of the state before the first step.
    """
    unit, head = _unit(rows, config)
    column = unit.column
    length = steps if lengths is None else tl.load(lengths + unit.row).to(tl.int32)
    weight += head * (4 * config.width * config.width)
    own = _resident(weight, column, config)
    zeros = tl.where(tl.sum(_rows(weight, 0, column, config.tile, config), axis=0) < float("-inf"), 1.0, 0.0)
    dh = _load_final(grad_final_hidden, unit, config) + zeros
    d = State(
        _load_final(grad_final_cell, unit, config) + zeros,
        _load_final(grad_final_normalizer, unit, config) + zeros,
        _load_final(grad_final_scale, unit, config) + zeros,
    )
    nothing = tl.zeros(unit.column.shape, tl.float32)
    for t in range(length, steps):
        _store_gates(Gates(nothing, nothing, nothing, nothing), sums, _place(unit, t), unit, config)
    first = _first_state(cell, normalizer, scale, unit, config)
    first = State(first.cell + zeros, first.normalizer + zeros, first.scale + zeros)
    after = _load_state(states, _place(unit, length - 1), unit, True, config)
    after = State(after.cell + zeros, after.normalizer + zeros, after.scale + zeros)
    next_gates, next_before, next_d = _load_step(sums, states, first, grad_outputs, length - 1, unit, config)
    tl.debug_barrier()  # several threads hold an element: all have loaded it before one overwrites it

    for back in range(length):
        t = length - 1 - back
        place = _place(unit, t)
        gates = Gates(
            next_gates.write + zeros,
            next_gates.forget + zeros,
            next_gates.candidate + zeros,
            next_gates.output + zeros,
        )
        earlier = State(next_before.cell + zeros, next_before.normalizer + zeros, next_before.scale + zeros)
        dh += next_d + zeros
        next_gates, next_before, next_d = _load_step(sums, states, first, grad_outputs, t - 1, unit, config)
        before = earlier
        if starts is not None:
            has_started = tl.load(starts + place) != 0
            before = reset(before, has_started, config.lowest)
        gradients, d = advance_backward(gates, before, after, dh, d)
        _store_gates(gradients, sums, place, unit, config)
        from_sums = sums + (place * (4 * config.size) + head * config.width)
        dh = _backward_products(gradients, from_sums, own, weight, column, config)
        if starts is not None:
            dh, d = tl.where(has_started, 0.0, dh), reset(d, has_started, 0.0)
        after = earlier

    _store(dh, grad_hidden, unit.row, unit, config)
    _store(d.cell, grad_cell, unit.row, unit, config)
    _store(d.normalizer, grad_normalizer, unit.row, unit, config)
    _store(d.scale, grad_scale, unit.row, unit, config)
