"""The kernels of the forward pass: one of all chunks at once, one that carries the memories, one that reads them.

See `gyral.ops.delta.naive` for the chunk form. Between the kernels, a chunk of a head has in rows of micro-steps

    readers    q ⊙ e^G                              (C, K)
    keys       k ⊙ e^{G_C − G}                      (C, K)
    behind     W = (I + L)⁻¹ (r ⊙ e^G)              (C, K)
    solved     (I + L)⁻¹ v, then U                  (C, V)
    attention  A                                    (C, C)
    system     L, strictly lower                    (C, C)
    inverse    (I + L)⁻¹                            (C, C)
    kept       e^{G_C}                              (K)
    marks      2 · segment, + 1 if not finite       (C)
    summary    2 · segment of the last micro-step, + 1 if one of this segment is not finite

with zeros where a start is between a micro-step and the end of the chunk that it meets. What is not finite in k, v, γ,
r and w counts as zero, so that it reaches no earlier step. It spoils the memory of its head up to the next start: that
is NaN, as all outputs from the step on.
"""

import triton
import triton.language as tl

from gyral.ops.delta.triton.chunks import (
    cleaned,
    decays_between,
    decays_of_channels,
    is_number,
    key_at,
    last_of,
    last_segment,
    load_channel_sums,
    load_chunk,
    load_erasers,
    load_rates,
    load_rows,
    load_scales,
    load_sums,
    output_at,
    query_at,
    value_at,
    zeros,
)


@triton.jit(do_not_specialize=["steps", "rows"])
def prepare_chunks(
    q,
    k,
    v,
    decay,
    erase,
    write,
    lengths,
    starts,
    grad_outputs,
    readers,
    keys,
    behind,
    solved,
    attention,
    system,
    inverse,
    kept,
    marks,
    summary,
    grad_solved,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the factors of a chunk; see above.

    For the backward pass, `grad_solved` becomes the gradient of U from the outputs of the chunk, Aᵀ dY, with NaN at the
    micro-steps that reach an output whose gradient is not finite. Any of `solved`, `grad_outputs` and `grad_solved` may
    be None.
    """
    items = rows * config.heads
    c = load_chunk(tl.program_id(0) // items, tl.program_id(0) % items, steps, rows, lengths, starts, config)
    i = tl.arange(0, config.chunk)
    square = c.at * (config.chunk * config.chunk) + i[:, None] * config.chunk + i[None, :]
    same = c.valid[:, None] & c.valid[None, :]
    last = 0
    if starts is not None:
        same = same & (c.segment[:, None] == c.segment[None, :])
        last = last_segment(c, config)
    until, before = same & (i[:, None] >= i[None, :]), same & (i[:, None] > i[None, :])
    in_first, in_last = (c.segment == 0)[:, None], (c.segment == last)[:, None]
    good = c.time >= 0
    of_q, of_k = load_scales(q, k, c, config)
    rates = of_k
    if config.erase == "rates":
        rates = load_rates(erase, c, config.groups, c.group)
        good = good & is_number(rates)
        rates = cleaned(rates)
    if config.decay == "scalar":
        high, low, high_turned, low_turned, is_good = load_sums(decay, c, config)
        good = good & is_good
    a = zeros(config.chunk, config.chunk)
    lower = a
    for first in range(0, config.padded_key, config.block_key):
        column = first + tl.arange(0, config.block_key)
        queries = load_rows(q, query_at(c, config), c.reads, column, config.key_size) * of_q[:, None]
        vectors = load_rows(k, key_at(c, config), c.valid, column, config.key_size)
        good = good & (tl.min(is_number(vectors).to(tl.int32), axis=1) > 0)
        vectors = cleaned(vectors) * of_k[:, None]
        if config.decay == "vector":
            high, low, is_good = load_channel_sums(decay, c, column, config)
            good = good & is_good
            between = decays_of_channels(high, low, until)
            a += tl.sum(queries[:, None, :] * vectors[None, :, :] * between, axis=2)
        else:
            a = tl.dot(queries, tl.trans(vectors), a, input_precision=config.precision)
        if config.erase != "none":
            r = load_erasers(erase, vectors, rates, c, column, config)
            good = good & (tl.min(is_number(r).to(tl.int32), axis=1) > 0)
            r = cleaned(r)
            if config.decay == "vector":
                lower += tl.sum(r[:, None, :] * vectors[None, :, :] * between, axis=2)
            else:
                lower = tl.dot(r, tl.trans(vectors), lower, input_precision=config.precision)
        at = c.at * (config.chunk * config.padded_key) + i[:, None] * config.padded_key + column[None, :]
        keep = c.at * config.padded_key + column
        if config.decay != "none":
            end, end_low = last_of(high, config), last_of(low, config)
            queries *= tl.exp(high + low)
            vectors *= tl.exp(tl.where(in_last, (end - high) + (end_low - low), float("-inf")))
            of_end = tl.exp(end + end_low)
        else:
            of_end = zeros(1, config.block_key) + 1.0
        if starts is not None:
            queries = tl.where(in_first, queries, 0.0)
            vectors = tl.where(in_last, vectors, 0.0)
            of_end = tl.where(last == 0, of_end, 0.0)
        tl.store(readers + at, queries)
        tl.store(keys + at, vectors)
        tl.store(kept + keep[None, :], of_end)
    if config.decay == "scalar":
        between = decays_between(high, low, high_turned, low_turned, until)
        a *= between
        lower *= between
    tl.store(attention + square, tl.where(until, a, 0.0))
    if config.erase != "none":
        tl.store(system + square, tl.where(before, lower, 0.0))
        tl.debug_barrier()  # other threads load it
        m = tl.where(i[:, None] == i[None, :], 1.0, 0.0)
        line_at = system + c.at * (config.chunk * config.chunk) + i
        for row in range(1, config.chunk):  # row of (I + L)⁻¹ = e_row − L_row (I + L)⁻¹; powers of L would cancel
            line = tl.load(line_at + row * config.chunk)
            m -= tl.where(i[:, None] == row, tl.sum(line[:, None] * m, axis=0)[None, :], 0.0)
        tl.store(inverse + square, m)
        for first in range(0, config.padded_key, config.block_key):
            column = first + tl.arange(0, config.block_key)
            vectors = cleaned(load_rows(k, key_at(c, config), c.valid, column, config.key_size)) * of_k[:, None]
            r = cleaned(load_erasers(erase, vectors, rates, c, column, config))
            if config.decay == "vector":
                high, low, _ = load_channel_sums(decay, c, column, config)
            if config.decay != "none":
                r *= tl.exp(high + low)
            if starts is not None:
                r = tl.where(in_first, r, 0.0)
            at = c.at * (config.chunk * config.padded_key) + i[:, None] * config.padded_key + column[None, :]
            tl.store(behind + at, tl.dot(m, r, input_precision=config.precision))
    elif grad_solved is not None:
        tl.debug_barrier()
    if config.writes:
        rates = load_rates(write, c, config.heads, c.head)
    for first in range(0, config.value_size, config.block_value):
        column = first + tl.arange(0, config.block_value)
        at = c.at * (config.chunk * config.padded_value) + i[:, None] * config.padded_value + column[None, :]
        inside = (column < config.padded_value)[None, :]
        if solved is not None:
            values = load_rows(v, value_at(c, config), c.valid, column, config.value_size)
            if config.writes:
                values *= rates[:, None]
            good = good & (tl.min(is_number(values).to(tl.int32), axis=1) > 0)
            values = cleaned(values)
            if config.erase != "none":
                values = tl.dot(m, values, input_precision=config.precision)
            tl.store(solved + at, values, mask=inside)
        if grad_solved is not None:
            turned = tl.load(attention + c.at * (config.chunk * config.chunk) + i[None, :] * config.chunk + i[:, None])
            grads = load_rows(grad_outputs, output_at(c, config), c.reads, column, config.value_size)
            is_bad = tl.max(1 - is_number(grads).to(tl.int32), axis=1)
            reached = tl.max(tl.where(until, is_bad[:, None], 0), axis=0)  # of rows i ≥ j that each j reaches
            grads = tl.dot(turned, cleaned(grads), input_precision=config.precision)
            tl.store(grad_solved + at, tl.where(reached[:, None] > 0, float("nan"), grads), mask=inside)
    bad = 1 - good.to(tl.int32)
    tl.store(marks + c.at * config.chunk + i, 2 * c.segment + bad)
    of_last = tl.max(tl.where(c.segment == last, bad, 0), axis=0)
    tl.store(summary + c.at, 2 * last + of_last)


@triton.jit(do_not_specialize=["steps", "rows"])
def carry_memory(
    keys,
    behind,
    solved,
    kept,
    marks,
    summary,
    starts,
    s0,
    states,
    spoiled,
    final,
    steps,
    rows,
    config: tl.constexpr,
):
    """Run the memories through all chunks, a block of columns in each program: write those before each chunk, and U.

    `spoiled` becomes whether the memory before each chunk is NaN, which `states` does not show.
    """
    items = rows * config.heads
    item = (tl.program_id(0) % items).to(tl.int64)
    block = tl.program_id(0) // items
    i, key = tl.arange(0, config.chunk), tl.arange(0, config.padded_key)
    value = block * config.carry_value + tl.arange(0, config.carry_value)
    inside = (key < config.key_size)[:, None] & (value < config.value_size)[None, :]
    at = (item * config.key_size + key[:, None]) * config.value_size + value[None, :]
    s = tl.load(s0 + at, mask=inside, other=0.0)
    in_rows = (value < config.padded_value)[None, :]
    in_matrix = (key < config.key_size)[:, None] & in_rows
    is_spoiled = block * 0
    for chunk in range(0, tl.cdiv(steps * config.micro, config.chunk)):
        place = tl.cast(chunk, tl.int64) * items + item
        tl.store(
            states + (place * config.key_size + key[:, None]) * config.padded_value + value[None, :], s, mask=in_matrix
        )
        tl.store(spoiled + place, is_spoiled, mask=block == 0)
        row = place * config.chunk + i
        u_at = solved + row[:, None] * config.padded_value + value[None, :]
        u = tl.load(u_at, mask=in_rows, other=0.0)
        turned = tl.load(keys + row[None, :] * config.padded_key + key[:, None])
        keep = tl.load(kept + place * config.padded_key + key)[:, None]
        of_all = tl.load(summary + place)
        if starts is not None:
            mark = tl.load(marks + row)
        if config.erase != "none":
            w = tl.load(behind + row[:, None] * config.padded_key + key[None, :])
            read = tl.dot(w, s, input_precision=config.precision)
            if starts is not None:
                read = tl.where((mark < 2)[:, None], read, 0.0)
            u -= read
            tl.store(u_at, u, mask=in_rows)
        if starts is not None:
            u = tl.where((mark // 2 == of_all // 2)[:, None], u, 0.0)
            s = tl.where(keep > 0, keep * s, 0.0)
        elif config.decay != "none":
            s *= keep
        s = tl.dot(turned, u, s, input_precision=config.precision)
        is_spoiled = tl.where(of_all % 2 == 1, 1, tl.where(of_all < 2, is_spoiled, 0))
    tl.store(final + at, tl.where(is_spoiled > 0, float("nan"), s), mask=inside)


@triton.jit(do_not_specialize=["steps", "rows"])
def read_memory(
    readers,
    solved,
    attention,
    marks,
    spoiled,
    lengths,
    starts,
    states,
    outputs,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the outputs of a chunk, a block of columns in each program."""
    items = rows * config.heads
    index = tl.program_id(0) // tl.cdiv(config.value_size, config.block_value)
    c = load_chunk(index // items, index % items, steps, rows, lengths, starts, config)
    i = tl.arange(0, config.chunk)
    value = tl.program_id(0) % tl.cdiv(config.value_size, config.block_value) * config.block_value
    value += tl.arange(0, config.block_value)
    row = c.at * config.chunk + i
    y = zeros(config.chunk, config.block_value)
    for first in range(0, config.key_size, config.block_key):
        column = first + tl.arange(0, config.block_key)
        queries = tl.load(readers + row[:, None] * config.padded_key + column[None, :])
        at = (c.at * config.key_size + column[:, None]) * config.padded_value + value[None, :]
        inside = (column < config.key_size)[:, None] & (value < config.value_size)[None, :]
        s = tl.load(states + at, mask=inside, other=0.0)
        y = tl.dot(queries, s, y, input_precision=config.precision)
    u = load_rows(solved, row * config.padded_value, i >= 0, value, config.value_size)
    bad = tl.load(marks + row) % 2
    is_spoiled = (c.segment == 0) & (tl.load(spoiled + c.at) > 0)
    if starts is not None:  # what is before the start may be infinite
        y = tl.where((c.segment == 0)[:, None], y, 0.0)
        u = cleaned(u)
    a = tl.load(attention + row[:, None] * config.chunk + i[None, :])
    y = tl.dot(a, u, y, input_precision=config.precision)
    reaches = (c.segment[:, None] == c.segment[None, :]) & (i[:, None] >= i[None, :])
    is_spoiled = is_spoiled | (tl.max(tl.where(reaches, bad[None, :], 0), axis=1) > 0)
    y = tl.where(is_spoiled[:, None], float("nan"), y)
    writes = c.exists & ((c.place % config.micro) == config.micro - 1)
    at = output_at(c, config)[:, None] + value[None, :]
    tl.store(
        outputs + at, tl.where(c.valid[:, None], y, 0.0), mask=writes[:, None] & (value < config.value_size)[None, :]
    )
