"""The kernels for small sizes: a program runs one sequence through all steps.

Of the recurrent weights, as many matrices (N, N) as fit stay in registers over the steps; the others are read in each
step. What a step reads is loaded before the step ahead of it is computed.
"""

import triton
import triton.language as tl

from gyral.ops.gated.triton.step import (
    load_parts,
    load_rows,
    load_zoneout,
    step_backward,
    step_forward,
    store_parts,
    store_rows,
    zone_out,
    zone_out_backward,
)
from gyral.ops.triton.rows import add_2, add_3, add_4

FEW = tl.constexpr(2)  # rows of further parameters that stay in registers over the steps


@triton.jit
def _load_matrix(weight, number: tl.constexpr, columns, config: tl.constexpr):
    """Return one of the matrices (N, N) of the weights; their columns, not their rows, are those of the sums."""
    index = tl.arange(0, columns.shape[0])[:, None]
    inside = (index < config.size) & (columns < config.size)
    return tl.load(weight + (number * config.size + index) * config.size + columns, mask=inside, other=0.0)


@triton.jit
def _resident(weight, columns, config: tl.constexpr, resident: tl.constexpr):
    """Return the first `resident` matrices of the weights."""
    matrices = ()
    for number in tl.static_range(resident):
        matrices += (_load_matrix(weight, number, columns, config),)
    return matrices


@triton.jit
def _add_6(a, b, c, d, e, f, other_a, other_b, other_c, other_d, other_e, other_f):
    return a + other_a, b + other_b, c + other_c, d + other_d, e + other_e, f + other_f


@triton.jit
def _zeros_of_sums(weight, matrices, columns, config: tl.constexpr, resident: tl.constexpr):
    """Return zeros (N,) whose elements are in the threads of the columns of a matrix.

    The compiler gives a sum with them this layout, so that it exchanges nothing between threads before it adds the sums
    of the products.
    """
    matrix = matrices[0] if resident > 0 else _load_matrix(weight, 0, columns, config)
    return tl.where(tl.sum(matrix, axis=0) < float("-inf"), 1.0, 0.0)


@triton.jit
def _sum_rows(tiles):
    """Return the sums of the rows of each of some tiles, in one reduction."""
    count: tl.constexpr = len(tiles)
    if count == 1:
        sums = (tl.sum(tiles[0], axis=0),)
    elif count == 2:
        sums = tl.reduce((tiles[0], tiles[1]), 0, add_2)
    elif count == 3:
        sums = tl.reduce((tiles[0], tiles[1], tiles[2]), 0, add_3)
    elif count == 4:
        sums = tl.reduce((tiles[0], tiles[1], tiles[2], tiles[3]), 0, add_4)
    else:
        sums = tl.reduce((tiles[0], tiles[1], tiles[2], tiles[3], tiles[4], tiles[5]), 0, _add_6)
    return sums


@triton.jit
def _product(
    factors, matrices, weight, out: tl.constexpr, index: tl.constexpr, columns, is_forward: tl.constexpr,
    config: tl.constexpr, resident: tl.constexpr, groups: tl.constexpr,
):  # fmt: skip
    """Return the terms of the sums in row `out` from row `index` of the factors, with a matrix that may be resident."""
    part: tl.constexpr = out if is_forward else index
    half: tl.constexpr = index if is_forward else out
    number: tl.constexpr = part * config.hidden + half
    is_resident: tl.constexpr = number < resident
    matrix = matrices[number] if is_resident else _load_matrix(weight, number, columns, config)
    products = factors[index][:, None] * matrix
    # a thread adds up its rows, of which it has every `groups`th one: it need not keep all of the products
    return tl.sum(tl.reshape(products, [products.shape[0] // groups, groups, products.shape[1]]), axis=0)


@triton.jit
def _multiply(
    factors, matrices, weight, columns, is_forward: tl.constexpr, config: tl.constexpr, resident: tl.constexpr,
    groups: tl.constexpr,
):  # fmt: skip
    """Return the rows of W h forward, and those of Wᵀ d backward."""
    outer: tl.constexpr = len(config.widths) if is_forward else config.hidden
    inner: tl.constexpr = config.hidden if is_forward else len(config.widths)
    tiles = ()
    for out in tl.static_range(outer):
        tile = _product(factors, matrices, weight, out, 0, columns, is_forward, config, resident, groups)
        for index in tl.static_range(1, inner):
            tile += _product(factors, matrices, weight, out, index, columns, is_forward, config, resident, groups)
        tiles += (tile,)
    return _sum_rows(tiles)


@triton.jit
def _choose(condition, one, other):
    """Return one or the other tuple of rows."""
    count: tl.constexpr = len(one)
    rows = ()
    for index in tl.static_range(count):
        rows += (tl.where(condition, one[index], other[index]),)
    return rows


@triton.jit
def _add(one, other):
    """Return the sums of two tuples of rows; only of the first rows of the longer one."""
    count: tl.constexpr = len(one)
    rows = ()
    for index in tl.static_range(count):
        rows += (one[index] + other[index],)
    return rows


@triton.jit
def _scale(rows, factors):
    """Return rows times factors."""
    count: tl.constexpr = len(rows)
    scaled = ()
    for index in tl.static_range(count):
        scaled += (rows[index] * factors[index],)
    return scaled


@triton.jit
def _but_last(rows, last):
    """Return rows with another last one."""
    count: tl.constexpr = len(rows) - 1
    found = ()
    for index in tl.static_range(count):
        found += (rows[index],)
    found += (last,)
    return found


@triton.jit
def _zeros(count: tl.constexpr, block: tl.constexpr):
    """Return a tuple of rows of zeros."""
    rows = ()
    for _ in tl.static_range(count):
        rows += (tl.zeros([block], tl.float32),)
    return rows


@triton.jit
def _stack(rows, number):
    """Return rows as one matrix (S, N), with numbers (S, 1); its rows beyond them have any values.

    Each warp has all of the rows, so that no thread needs a number of another one. A row alone would be either in the
    registers of each warp, or spread over all threads, which exchange it first.
    """
    count: tl.constexpr = len(rows)
    matrix = tl.broadcast_to(rows[0][None, :], [number.shape[0], rows[0].shape[0]])
    for index in tl.static_range(1, count):
        matrix = tl.where(number == index, rows[index][None, :], matrix)
    return matrix


@triton.jit
def _store_together(rows, places, columns, valid, stack: tl.constexpr, config: tl.constexpr):
    """Store rows, of which the first ones are parts, at their places."""
    count: tl.constexpr = len(rows)
    parts: tl.constexpr = len(config.widths)
    number = tl.arange(0, stack)[:, None]
    inside = (number < count) & valid & (columns < config.size)[None, :]
    at, place = places[0] + tl.zeros([stack, 1], tl.int32), columns[None, :]
    for index in tl.static_range(1, count):
        at = tl.where(number == index, places[index], at)
    for index in tl.static_range(parts):
        if config.widths[index] < config.size:  # a number for each chunk of units
            inside = inside & ((columns % config.chunk == 0)[None, :] | (number != index))
            place = tl.where(number == index, (columns // config.chunk)[None, :], place)
    tl.store(at + place, _stack(rows, number), mask=inside)


@triton.jit
def _places(parts, kept, index, config: tl.constexpr):
    """Return where a step has its rows of P_t, and its product that is kept, if there is one."""
    count: tl.constexpr = len(config.widths)
    places = ()
    for number in tl.static_range(count):
        places += (parts + (index * config.width + config.offsets[number]),)
    if config.keeps_product:
        places += (kept + index * config.size,)
    return places


@triton.jit
def _spread(rows, zeros):
    """Return rows in the layout of zeros; see `_zeros_of_sums`."""
    count: tl.constexpr = len(rows)
    spread = ()
    for index in tl.static_range(count):
        spread += (rows[index] + zeros,)
    return spread


@triton.jit
def _length_of(lengths, row, steps):
    length = steps
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    return length


@triton.jit
def _started(starts, index, valid):
    """Return whether the row is reset before a step."""
    started = valid & False
    if starts is not None:
        started = tl.load(starts + index, mask=valid, other=0) != 0
    return started


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_loop(
    parts, weight, extra, hidden, cell_state, fresh, keep, keep_cell_state, drop, lengths, starts,
    outputs, cell_states, kept, final, final_cell_state,
    steps, batch, keep_mean, keep_cell_state_mean, epsilon,
    config: tl.constexpr, block: tl.constexpr, resident: tl.constexpr, stack: tl.constexpr,
    groups: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    """Run all steps. `weight` has a matrix (N, N) for each part and each row of h, with rows of units of h."""
    size: tl.constexpr = config.size
    halves: tl.constexpr = config.hidden
    zoneout: tl.constexpr = config.zoneout
    zoneout_c: tl.constexpr = config.zoneout_cell_state
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    inside = columns < size
    exists = row < batch
    length = _length_of(lengths, row, steps)
    matrices = _resident(weight, columns, config, resident)
    zeros = _zeros_of_sums(weight, matrices, columns, config, resident)
    added = load_rows(extra, columns, exists, config.extra, size)
    h = _spread(load_rows(hidden + row * (halves * size), columns, exists, halves, size), zeros)
    c = zeros
    if config.has_cell_state:
        c += tl.load(cell_state + row * size + columns, mask=inside, other=0.0)
    begin = _zeros(halves, block)
    if fresh is not None:
        begin = load_rows(fresh, columns, exists, halves, size)
    if drop is not None:
        dropped = load_rows(drop + row * (halves * size), columns, exists, halves, size)
    next_parts = load_parts(parts + row * config.width, columns, exists & (length > 0), config)
    next_started = _started(starts, row, exists & (length > 0))

    for t in range(length):
        index = row + tl.cast(t, tl.int64) * batch
        rows, started = _spread(next_parts, zeros), next_started
        ahead = exists & (t + 1 < length)
        if early:
            next_parts = load_parts(parts + (index + batch) * config.width, columns, ahead, config)
            next_started = _started(starts, index + batch, ahead)
        factors = load_zoneout(keep + index * (halves * size), keep_mean, columns, exists, zoneout, halves, size)
        factors_cell_state = load_zoneout(
            keep_cell_state + index * size, keep_cell_state_mean, columns, exists, zoneout_c, 1, size
        )
        if starts is not None:
            if fresh is not None and not early:
                begin = load_rows(fresh, columns, exists, halves, size)
            h = _choose(started, begin, h)
            c = tl.where(started, 0.0, c)
        if config.extra > FEW:
            added = load_rows(extra, columns, exists, config.extra, size)
        read = h
        if drop is not None:
            if not early:
                dropped = load_rows(drop + row * (halves * size), columns, exists, halves, size)
            read = _scale(h, dropped)
        products = _multiply(read, matrices, weight, columns, True, config, resident, groups)
        new, new_c, saved, product = step_forward(rows, products, h, c, added, columns, epsilon, config)
        h = zone_out(new, h, factors, zoneout, halves)
        places = _places(parts, kept, index, config)
        for half in tl.static_range(halves):
            places += (outputs + (index * halves + half) * size,)
        stored = saved
        if config.keeps_product:
            stored += (product,)
        stored += h
        if config.has_cell_state:
            c = zone_out((new_c,), (c,), factors_cell_state, zoneout_c, 1)[0]
            places += (cell_states + index * size,)
            stored += (c,)
        # several threads hold an element: all have loaded it before the sums of the products, so that it is overwritten
        _store_together(stored, places, columns, exists, stack, config)
        if not early:
            next_parts = load_parts(parts + (index + batch) * config.width, columns, ahead, config)
            next_started = _started(starts, index + batch, ahead)

    store_rows(h, final + row * (halves * size), columns, exists, halves, size)
    if config.has_cell_state:
        tl.store(final_cell_state + row * size + columns, c, mask=inside)
    nothing = _zeros(halves, block)
    for t in range(length, steps):
        end = (row + tl.cast(t, tl.int64) * batch) * (halves * size)
        store_rows(nothing, outputs + end, columns, exists, halves, size)


@triton.jit
def _load_step(
    parts, kept, hidden, cell_state, outputs, cell_states, grad_outputs, starts, t, row, batch, columns, valid, given,
    config: tl.constexpr,
):  # fmt: skip
    """Return what backward reads at step t: saved rows, the kept product, h and c before it, ∂L/∂h_t, and a reset."""
    size: tl.constexpr = config.size
    halves: tl.constexpr = config.hidden
    index = row + tl.cast(t, tl.int64) * batch
    inside = valid & (columns < size)
    is_first = t <= 0
    saved = load_parts(parts + index * config.width, columns, valid, config)
    product = saved[0]
    if config.keeps_product:
        product = tl.load(kept + index * size + columns, mask=inside, other=0.0)
    before = outputs + (index - batch) * (halves * size)
    if is_first:
        before = hidden + row * (halves * size)
    h = load_rows(before, columns, valid, halves, size)
    c = h[0]
    if config.has_cell_state:
        before = cell_states + (index - batch) * size
        if is_first:
            before = cell_state + row * size
        c = tl.load(before + columns, mask=inside, other=0.0)
    d = load_rows(grad_outputs + index * (halves * size), columns, valid & given, halves, size)
    return saved, product, h, c, d, _started(starts, index, valid)


@triton.jit(do_not_specialize=["given_outputs", "given_final", "given_final_cell_state", "steps", "batch"])
def backward_loop(
    parts, weight, extra, hidden, cell_state, fresh, keep, keep_cell_state, drop, lengths, starts,
    outputs, cell_states, kept, grad_outputs, grad_final, grad_final_cell_state,
    grad_hidden, grad_cell_state, grad_extra, grad_fresh,
    given_outputs, given_final, given_final_cell_state, steps, batch, keep_mean, keep_cell_state_mean, epsilon,
    config: tl.constexpr, block: tl.constexpr, resident: tl.constexpr, stack: tl.constexpr,
    groups: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse. The matrices in `weight` have rows of units of parts.

    Gradients take the place of what is saved in `parts` and `kept`. A gradient of results that is not given is zero.
    `grad_extra` (B, …) and `grad_fresh` (B, H) are the terms of each row.
    """
    size: tl.constexpr = config.size
    halves: tl.constexpr = config.hidden
    zoneout: tl.constexpr = config.zoneout
    zoneout_c: tl.constexpr = config.zoneout_cell_state
    count: tl.constexpr = len(config.widths)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    inside = columns < size
    exists = row < batch
    length = _length_of(lengths, row, steps)
    matrices = _resident(weight, columns, config, resident)
    zeros = _zeros_of_sums(weight, matrices, columns, config, resident)
    added = load_rows(extra, columns, exists, config.extra, size)
    begin = _zeros(halves, block)
    if fresh is not None:
        begin = load_rows(fresh, columns, exists, halves, size)
    if drop is not None:
        dropped = load_rows(drop + row * (halves * size), columns, exists, halves, size)
    nothing, no_parts = _zeros(halves, block), _zeros(count, block)
    sums_fresh = _spread(nothing, zeros)
    number = tl.arange(0, stack)[:, None]
    sums = tl.where(number < 0, zeros[None, :], 0.0)
    at = row * (halves * size)
    dh = _spread(load_rows(grad_final + at, columns, exists & (given_final != 0), halves, size), zeros)
    dc = zeros
    if config.has_cell_state:
        valid = inside & (given_final_cell_state != 0)
        dc += tl.load(grad_final_cell_state + row * size + columns, mask=valid, other=0.0)
    for t in range(length, steps):
        index = row + tl.cast(t, tl.int64) * batch
        store_parts(no_parts, parts + index * config.width, columns, exists, config)
        if config.keeps_product:
            tl.store(kept + index * size + columns, zeros, mask=inside)
    next_saved, next_product, next_h, next_c, next_d, next_started = _load_step(
        parts, kept, hidden, cell_state, outputs, cell_states, grad_outputs, starts, length - 1, row, batch, columns,
        exists & (length > 0), given_outputs != 0, config,
    )  # fmt: skip

    tl.debug_barrier()  # as if the sums of a step before were here
    for reverse_t in range(length):
        t = length - 1 - reverse_t
        index = row + tl.cast(t, tl.int64) * batch
        saved, h, c, d = _spread(next_saved, zeros), _spread(next_h, zeros), next_c + zeros, _spread(next_d, zeros)
        product, started = next_product + zeros, next_started
        factors = load_zoneout(keep + index * (halves * size), keep_mean, columns, exists, zoneout, halves, size)
        factors_cell_state = load_zoneout(
            keep_cell_state + index * size, keep_cell_state_mean, columns, exists, zoneout_c, 1, size
        )
        if starts is not None:
            if fresh is not None and not early:
                begin = load_rows(fresh, columns, exists, halves, size)
            h = _choose(started, begin, h)
            c = tl.where(started, 0.0, c)
        if config.extra > FEW:
            added = load_rows(extra, columns, exists, config.extra, size)
        d, dh_old = zone_out_backward(_add(d, dh), factors, zoneout, halves)
        dc_new, dc_old = zone_out_backward((dc,), factors_cell_state, zoneout_c, 1)
        d_parts, d_product, dh, dc, d_extra = step_backward(
            d, dc_new[0], saved, product, h, c, added, columns, epsilon, config
        )
        dc += dc_old[0]
        if config.extra > 0:
            sums += _stack(d_extra, number)
        stored, read = d_parts, d_parts
        if config.keeps_product:
            stored += (d_product,)
            read = _but_last(d_parts, d_product)
        # several threads hold an element: all have loaded it before the sums of the last step, or before this barrier
        if not early:
            tl.debug_barrier()
        places = _places(parts, kept, index, config)
        _store_together(stored, places, columns, exists, stack, config)
        if early:  # ahead of the sums, and not of the functions above, which need as many registers
            next_saved, next_product, next_h, next_c, next_d, next_started = _load_step(
                parts, kept, hidden, cell_state, outputs, cell_states, grad_outputs, starts, t - 1, row, batch, columns,
                exists & (t > 0), given_outputs != 0, config,
            )  # fmt: skip
        through = _multiply(read, matrices, weight, columns, False, config, resident, groups)
        if not early:
            next_saved, next_product, next_h, next_c, next_d, next_started = _load_step(
                parts, kept, hidden, cell_state, outputs, cell_states, grad_outputs, starts, t - 1, row, batch, columns,
                exists & (t > 0), given_outputs != 0, config,
            )  # fmt: skip
        dh = _add(dh, dh_old)
        if drop is not None:
            if not early:
                dropped = load_rows(drop + row * (halves * size), columns, exists, halves, size)
            through = _scale(through, dropped)
        dh = _add(dh, through)
        if starts is not None:
            sums_fresh = _add(sums_fresh, _choose(started, dh, nothing))
            dh = _choose(started, nothing, dh)
            dc = tl.where(started, 0.0, dc)

    store_rows(dh, grad_hidden + at, columns, exists, halves, size)
    if config.has_cell_state:
        tl.store(grad_cell_state + row * size + columns, dc, mask=inside)
    if config.extra > 0:
        at_sums = grad_extra + (row * config.extra + number) * size + columns
        tl.store(at_sums, sums, mask=(number < config.extra) & inside & exists)
    if fresh is not None:
        store_rows(sums_fresh, grad_fresh + at, columns, exists, halves, size)
