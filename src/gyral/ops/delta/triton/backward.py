"""The kernels of the backward pass: one that carries the gradients of memories, and two of all chunks at once.

`gyral.ops.delta.triton.forward` has the names. The gradient of G_i − G_j is P_ij = dA_ij A_ij + dL_ij L_ij for one
decay of a memory, and that of γ_l is the sum of those pairs with j < l ≤ i: a sum, without the differences of large
numbers that the gradients of G have.

A gradient that is not finite makes those of all micro-steps that reach its output NaN, and no others: what is not
finite is zero in the products.
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
    load_columns,
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
def carry_gradient(
    readers,
    keys,
    behind,
    kept,
    marks,
    summary,
    lengths,
    starts,
    grad_outputs,
    grad_final,
    grad_solved,
    grad_states,
    grad_s0,
    steps,
    rows,
    config: tl.constexpr,
):
    """Run the gradients of memories back through all chunks: write those after each chunk, and that of U."""
    items = rows * config.heads
    item = tl.program_id(0) % items
    block = tl.program_id(0) // items
    i, key = tl.arange(0, config.chunk), tl.arange(0, config.padded_key)
    value = block * config.carry_value + tl.arange(0, config.carry_value)
    inside = (key < config.key_size)[:, None] & (value < config.value_size)[None, :]
    at = (item.to(tl.int64) * config.key_size + key[:, None]) * config.value_size + value[None, :]
    ds = zeros(config.padded_key, config.carry_value)
    if grad_final is not None:
        ds = tl.load(grad_final + at, mask=inside, other=0.0)
    in_rows = (value < config.padded_value)[None, :]
    in_matrix = (key < config.key_size)[:, None] & in_rows
    chunks = tl.cdiv(steps * config.micro, config.chunk)
    for back in range(0, chunks):
        place = (chunks - 1 - tl.cast(back, tl.int64)) * items + item
        states_at = (place * config.key_size + key[:, None]) * config.padded_value + value[None, :]
        tl.store(grad_states + states_at, ds, mask=in_matrix)
        row = place * config.chunk + i
        rows_at = row[:, None] * config.padded_key + key[None, :]
        turned_at = row[None, :] * config.padded_key + key[:, None]
        keep = tl.load(kept + place * config.padded_key + key)[:, None]
        vectors = tl.load(keys + rows_at)
        du = tl.dot(vectors, ds, input_precision=config.precision)
        if starts is not None:
            of_all = tl.load(summary + place)
            mark = tl.load(marks + row)
            in_first = (mark < 2)[:, None]
            du = tl.where((mark // 2 == of_all // 2)[:, None], du, 0.0)
            ds = tl.where(keep > 0, keep * ds, 0.0)
        elif config.decay != "none":
            ds *= keep
        if grad_outputs is not None:
            c = load_chunk(chunks - 1 - back, item, steps, rows, lengths, None, config)
            dy = load_rows(grad_outputs, output_at(c, config), c.reads, value, config.value_size)
            du_at = grad_solved + row[:, None] * config.padded_value + value[None, :]
            du += tl.load(du_at, mask=in_rows, other=0.0)
            if starts is not None:
                dy = tl.where(in_first, dy, 0.0)
            queries = tl.load(readers + turned_at)
            ds = tl.dot(queries, dy, ds, input_precision=config.precision)
        tl.store(grad_solved + row[:, None] * config.padded_value + value[None, :], du, mask=in_rows)
        if config.erase != "none":
            if starts is not None:
                du = tl.where(in_first, du, 0.0)
            w = tl.load(behind + turned_at)
            ds = tl.dot(w, -du, ds, input_precision=config.precision)
    tl.store(grad_s0 + at, ds, mask=inside)


@triton.jit
def _store(pointer, at, found, bad, mask, column, width: tl.constexpr):
    """Store rows (C, W), NaN where `bad` (C,)."""
    found = tl.where(bad[:, None] > 0, float("nan"), found)
    tl.store(pointer + at[:, None] + column[None, :], found, mask=mask[:, None] & (column < width)[None, :])


@triton.jit(do_not_specialize=["steps", "rows"])
def differentiate_values(
    v,
    decay,
    write,
    lengths,
    starts,
    attention,
    system,
    inverse,
    solved,
    grad_outputs,
    grad_solved,
    grad_v,
    grad_write,
    grad_pairs,
    of_pairs,
    unreached,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of the values of a chunk and their rates, and of what is made of pairs.

    `grad_pairs` become the gradients of products of queries with keys, and of vectors of erasing with keys, (C, C).
    `of_pairs` (C,) become parts of the gradients of γ of a memory. `unreached` (C,) becomes 0 at the micro-steps whose
    gradients are not finite, else 1.
    """
    items = rows * config.heads
    c = load_chunk(tl.program_id(0) // items, tl.program_id(0) % items, steps, rows, lengths, starts, config)
    size: tl.constexpr = config.chunk
    i = tl.arange(0, size)
    same = c.valid[:, None] & c.valid[None, :]
    if starts is not None:
        same = same & (c.segment[:, None] == c.segment[None, :])
    until, before = same & (i[:, None] >= i[None, :]), same & (i[:, None] > i[None, :])
    row = c.at * size + i
    square = row[:, None] * size + i[None, :]
    turned = (c.at * size + i[None, :]) * size + i[:, None]
    da = zeros(size, size)
    dl = da
    dw = i * 0.0
    bad = i * 0
    if config.erase != "none":
        m_turned = tl.load(inverse + turned)
    rates = dw
    if config.writes:
        rates = load_rates(write, c, config.heads, c.head)
    for first in range(0, config.value_size, config.block_value):
        column = first + tl.arange(0, config.block_value)
        u_turned = cleaned(load_columns(solved, row * config.padded_value, i >= 0, column, config.value_size))
        dx = load_rows(grad_solved, row * config.padded_value, i >= 0, column, config.value_size)
        is_bad = tl.max(1 - is_number(dx).to(tl.int32), axis=1)
        bad = tl.maximum(bad, is_bad)
        dx = cleaned(dx)
        if grad_outputs is not None:
            dy = cleaned(load_rows(grad_outputs, output_at(c, config), c.reads, column, config.value_size))
            da = tl.dot(dy, u_turned, da, input_precision=config.precision)
        if config.erase != "none":
            dx = tl.dot(m_turned, dx, input_precision=config.precision)
            dl = tl.dot(-dx, u_turned, dl, input_precision=config.precision)
        if config.writes:
            values = cleaned(load_rows(v, value_at(c, config), c.valid, column, config.value_size))
            dw += tl.sum(dx * values, axis=1)
            dx *= rates[:, None]
        _store(grad_v, value_at(c, config), dx, is_bad, c.exists, column, config.value_size)
    tl.store(unreached + row, 1 - bad)
    if config.writes:
        tl.store(grad_write + c.place * config.heads + c.head, tl.where(bad > 0, float("nan"), dw), mask=c.exists)
    if config.decay == "scalar":
        pairs = da * tl.load(attention + square)
        if config.erase != "none":
            pairs += dl * tl.load(system + square)
        sums_from = tl.where(i[:, None] <= i[None, :], 1.0, 0.0)
        pairs = tl.dot(sums_from, tl.where(until, pairs, 0.0), input_precision="ieee")  # those with i ≥ l
        tl.store(of_pairs + row, tl.sum(tl.where(i[None, :] < i[:, None], pairs, 0.0), axis=1))
        high, low, high_turned, low_turned, _ = load_sums(decay, c, config)
        between = decays_between(high, low, high_turned, low_turned, until)
        da *= between
        dl *= between
    matrices: tl.constexpr = 1 if config.erase == "none" else 2
    at = grad_pairs + c.at * (matrices * size * size) + i[:, None] * size + i[None, :]
    tl.store(at, tl.where(until, da, 0.0))
    if config.erase != "none":
        tl.store(at + size * size, tl.where(before, dl, 0.0))


@triton.jit(do_not_specialize=["stride", "steps", "rows"])
def differentiate_keys(
    q,
    k,
    decay,
    erase,
    lengths,
    starts,
    inverse,
    kept,
    solved,
    states,
    grad_outputs,
    grad_solved,
    grad_states,
    grad_pairs,
    of_pairs,
    unreached,
    grad_q,
    grad_k,
    grad_decay,
    grad_erase,
    stride,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the other gradients of a chunk; those of q, k and `erase` for each head of a group, at a `stride`."""
    items = rows * config.heads
    c = load_chunk(tl.program_id(0) // items, tl.program_id(0) % items, steps, rows, lengths, starts, config)
    heads: tl.constexpr = config.heads // config.groups
    size: tl.constexpr = config.chunk
    i = tl.arange(0, size)
    last = 0
    if starts is not None:
        last = last_segment(c, config)
    in_first, in_last = (c.segment == 0)[:, None], (c.segment == last)[:, None]
    row = c.at * size + i
    is_micro = c.exists
    is_step = c.exists & (c.place % config.micro == 0)
    is_read = c.exists & (c.place % config.micro == config.micro - 1)
    matrices: tl.constexpr = 1 if config.erase == "none" else 2
    grad_pairs += c.at * (matrices * size * size)
    # loaded once more for the transpose: on Hopper GPUs some versions of Triton transpose results of products wrongly
    pairs_at, turned_at = i[:, None] * size + i[None, :], i[None, :] * size + i[:, None]
    bad = 1 - tl.load(unreached + row)
    of_q, of_k = load_scales(q, k, c, config)
    erasing = of_k
    if config.erase == "rates":
        erasing = cleaned(load_rates(erase, c, config.groups, c.group))
    if config.decay == "scalar":
        high, low, _, _, _ = load_sums(decay, c, config)
        end, end_low = last_of(high, config), last_of(low, config)
    one_step = c.time[:, None] == c.time[None, :]
    # of the exponents of what meets the memory before the chunk, of that after it, and of the memory itself
    of_readers = i * 0.0
    of_keys, of_memory, of_rates, along_q, along_k = of_readers, 0.0, of_readers, of_readers, of_readers
    # a multiple, so that rows of 16 bytes are stored at once
    of_head = (c.head % heads) * tl.multiple_of(stride, 4).to(tl.int64)
    grad_q += of_head
    grad_k += of_head
    if config.erase != "none":
        grad_erase += of_head
    sums_from = tl.where(i[:, None] <= i[None, :], 1.0, 0.0)  # times rows i: the sums of those with i ≥ l
    sums_until = tl.where(i[:, None] > i[None, :], 1.0, 0.0)
    for first in range(0, config.key_size, config.block_key):
        column = first + tl.arange(0, config.block_key)
        dq = zeros(size, config.block_key)
        dk, dr, of_kept = dq, dq, tl.arange(0, config.block_key) * 0.0
        for start in range(0, config.value_size, config.block_value):
            value = start + tl.arange(0, config.block_value)
            memory_at = (c.at * config.key_size + column[None, :]) * config.padded_value + value[:, None]
            inside = (column < config.key_size)[None, :] & (value < config.value_size)[:, None]
            s = tl.load(states + memory_at, mask=inside, other=0.0)
            ds = tl.load(grad_states + memory_at, mask=inside, other=0.0)
            u = cleaned(load_rows(solved, row * config.padded_value, i >= 0, value, config.value_size))
            dk = tl.dot(u, ds, dk, input_precision=config.precision)
            if grad_outputs is not None:
                dy = cleaned(load_rows(grad_outputs, output_at(c, config), c.reads, value, config.value_size))
                dq = tl.dot(dy, s, dq, input_precision=config.precision)
            if config.erase != "none":
                du = cleaned(load_rows(grad_solved, row * config.padded_value, i >= 0, value, config.value_size))
                dr = tl.dot(du, s, dr, input_precision=config.precision)
            of_kept += tl.sum(s * ds, axis=0)
        queries = cleaned(load_rows(q, query_at(c, config), c.reads, column, config.key_size) * of_q[:, None])
        vectors = cleaned(load_rows(k, key_at(c, config), c.valid, column, config.key_size)) * of_k[:, None]
        if config.erase != "none":
            m_turned = tl.load(inverse + c.at * (size * size) + turned_at)
            dr = -tl.dot(m_turned, dr, input_precision=config.precision)
            r = cleaned(load_erasers(erase, vectors, erasing, c, column, config))
        if config.decay == "vector":
            high, low, _ = load_channel_sums(decay, c, column, config)
            end, end_low = last_of(high, config), last_of(low, config)
        if config.decay != "none":
            carried = tl.exp(high + low)
            dq *= carried
            dr *= carried
            dk *= tl.exp(tl.where(in_last, (end - high) + (end_low - low), float("-inf")))
            of_kept *= tl.load(kept + c.at * config.padded_key + column)
        if starts is not None:
            dq, dr, dk = tl.where(in_first, dq, 0.0), tl.where(in_first, dr, 0.0), tl.where(in_last, dk, 0.0)
            of_kept = tl.where(last == 0, of_kept, 0.0)
        reads, remains = queries * dq, vectors * dk
        if config.erase != "none":
            reads += r * dr
        if config.decay == "scalar":
            of_readers += tl.sum(reads, axis=1)
            of_keys += tl.sum(remains, axis=1)
            of_memory += tl.sum(of_kept, axis=0)
        da = tl.load(grad_pairs + pairs_at)
        dl = da
        if config.erase != "none":
            dl = tl.load(grad_pairs + size * size + pairs_at)
        if config.decay == "vector":  # pairs of one step do not decay
            between = decays_of_channels(high, low, (i[:, None] > i[None, :]) & ~one_step)
            weighted = da[:, :, None] * between
            part_q = tl.sum(weighted * vectors[None, :, :], axis=1)
            part_k = tl.sum(weighted * queries[:, None, :], axis=0)
            if config.erase != "none":
                weighted = dl[:, :, None] * between
                part_r = tl.sum(weighted * vectors[None, :, :], axis=1)
                part_k += tl.sum(weighted * r[:, None, :], axis=0)
                dr += part_r
                reads += r * part_r
            dq += part_q
            dk += part_k
            reads += queries * part_q - vectors * part_k
            # in float32: the terms of pairs on one side of l cancel, and products of TF32 do not sum them exactly
            dgamma = tl.dot(sums_from, cleaned(reads), input_precision="ieee")
            dgamma = tl.dot(sums_until, cleaned(remains), dgamma, input_precision="ieee") + of_kept[None, :]
            decay_at = (c.step * config.heads + c.head) * config.key_size
            dgamma = tl.where(c.decays[:, None], dgamma, 0.0)
            _store(grad_decay, decay_at, dgamma, bad, is_step, column, config.key_size)
            near = tl.where(one_step, da, 0.0)
            if config.micro > 1:  # as products: Triton would make products of TF32 of their sums over an axis
                dq = tl.dot(near, vectors, dq, input_precision=config.precision)
                turned = tl.where(one_step, tl.load(grad_pairs + turned_at), 0.0)
                dk = tl.dot(turned, queries, dk, input_precision=config.precision)
                if config.erase != "none":
                    near = tl.where(one_step, dl, 0.0)
                    turned = tl.where(one_step, tl.load(grad_pairs + size * size + turned_at), 0.0)
                    dr = tl.dot(near, vectors, dr, input_precision=config.precision)
                    dk = tl.dot(turned, r, dk, input_precision=config.precision)
            else:  # of each micro-step with itself
                alone = tl.sum(near, axis=1)[:, None]
                dq += alone * vectors
                dk += alone * queries
        else:
            dq = tl.dot(da, vectors, dq, input_precision=config.precision)
            dk = tl.dot(tl.load(grad_pairs + turned_at), queries, dk, input_precision=config.precision)
            if config.erase != "none":
                dr = tl.dot(dl, vectors, dr, input_precision=config.precision)
                dk = tl.dot(tl.load(grad_pairs + size * size + turned_at), r, dk, input_precision=config.precision)
        if config.erase == "rates":
            of_rates += tl.sum(dr * vectors, axis=1)
            dk += erasing[:, None] * dr
        if config.erase == "vector":
            _store(grad_erase, key_at(c, config), dr, bad, is_micro, column, config.key_size)
        if config.unit:
            along_q += tl.sum(dq * queries, axis=1)
            along_k += tl.sum(dk * vectors, axis=1)
        _store(grad_q, query_at(c, config), dq, bad, is_read, column, config.key_size)
        _store(grad_k, key_at(c, config), dk, bad, is_micro, column, config.key_size)

    if config.erase == "rates":
        tl.store(
            grad_erase + c.place * config.groups + c.group, tl.where(bad > 0, float("nan"), of_rates), mask=is_micro
        )
    if config.decay == "scalar":
        dgamma = tl.load(of_pairs + row) + of_memory
        dgamma += tl.sum(tl.where(i[None, :] >= i[:, None], of_readers[None, :], 0.0), axis=1)
        dgamma += tl.sum(tl.where(i[None, :] < i[:, None], of_keys[None, :], 0.0), axis=1)
        dgamma = tl.where(bad > 0, float("nan"), tl.where(c.decays, dgamma, 0.0))
        tl.store(grad_decay + c.step * config.heads + c.head, dgamma, mask=is_step)
    if config.unit:
        tl.debug_barrier()  # other threads have stored what this loads
        for first in range(0, config.key_size, config.block_key):
            column = first + tl.arange(0, config.block_key)
            queries = load_rows(q, query_at(c, config), c.reads, column, config.key_size) * of_q[:, None]
            dq = load_rows(grad_q, query_at(c, config), is_read, column, config.key_size)
            dq = of_q[:, None] * (dq - queries * (config.key_size * along_q)[:, None])
            _store(grad_q, query_at(c, config), dq, bad, is_read, column, config.key_size)
            vectors = cleaned(load_rows(k, key_at(c, config), c.valid, column, config.key_size)) * of_k[:, None]
            dk = load_rows(grad_k, key_at(c, config), is_micro, column, config.key_size)
            dk = of_k[:, None] * (dk - vectors * along_k[:, None])
            _store(grad_k, key_at(c, config), dk, bad, is_micro, column, config.key_size)
