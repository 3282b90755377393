"""Kernels of WeiNet: one program runs one sequence through all steps.

Backward, an older A cannot be computed from a newer one: the gates may be zero. The forward pass stores A before each
chunk of steps, and the backward pass computes those within a chunk again, in memory that belongs to the program.
"""

import triton
import triton.language as tl

from gyral.ops.fast_weights.triton.step import (
    add_norm_backward,
    copy,
    load_hidden,
    load_keep,
    load_start,
    load_vector,
    normalized,
    product,
    zeros_of_columns,
)
from gyral.ops.triton.rows import add_2, add_3, add_4, sigmoid, tanh


@triton.jit
def _load_parts(parts, index, columns, valid, config: tl.constexpr):
    """Return the seven vectors of a step: four gates, value, key and candidate, or what the forward pass has stored."""
    at = parts + 7 * index * config.size + columns
    return (
        tl.load(at, mask=valid, other=0.0),
        tl.load(at + config.size, mask=valid, other=0.0),
        tl.load(at + 2 * config.size, mask=valid, other=0.0),
        tl.load(at + 3 * config.size, mask=valid, other=0.0),
        tl.load(at + 4 * config.size, mask=valid, other=0.0),
        tl.load(at + 5 * config.size, mask=valid, other=0.0),
        tl.load(at + 6 * config.size, mask=valid, other=0.0),
    )


@triton.jit
def _products(weight, vector, drop, columns, config: tl.constexpr):
    """Return the products (N,) of the four matrices Wᵀ (N, N) with a vector (N,) in memory."""
    size: tl.constexpr = config.size
    lines: tl.constexpr = config.lines
    nothing = tl.zeros([lines, columns.shape[0]], tl.float32)
    one, two, three, four = nothing, nothing, nothing, nothing
    for start in range(0, size, lines):
        line = start + tl.arange(0, lines)[:, None]
        exists = line < size
        at = weight + line * size + columns[None, :]
        inside = exists & (columns < size)[None, :]
        factor = tl.load(vector + line, mask=exists, other=0.0)
        if drop is not None:
            factor *= tl.load(drop + line, mask=exists, other=0.0)
        one += tl.load(at, mask=inside, other=0.0) * factor
        two += tl.load(at + size * size, mask=inside, other=0.0) * factor
        three += tl.load(at + 2 * size * size, mask=inside, other=0.0) * factor
        four += tl.load(at + 3 * size * size, mask=inside, other=0.0) * factor
    return tl.reduce((one, two, three, four), 0, add_4)


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_weinet(
    parts, weight, norm, hidden, memory, keep, drop, lengths, starts,
    outputs, final, final_memory, vectors, memories,
    steps, batch, keep_probability, epsilon, config: tl.constexpr,
):  # fmt: skip
    """Run all steps, with the four recurrent weights and A transposed: sums over rows are in the threads of columns.

    `vectors` (T, B, 7, N) gets the values of the gates, value, key, and the input of the normalization. An A that is
    not `on_chip` is in `final_memory`; then `vectors` are (B, 7, N) without `memories`.
    """
    size: tl.constexpr = config.size
    block: tl.constexpr = config.block
    lines: tl.constexpr = config.lines
    area: tl.constexpr = size * size
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    valid = columns < size
    at = columns[:, None] * size + columns[None, :]
    inside = valid[:, None] & valid[None, :]
    length = steps
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    if drop is not None:
        drop += row * size
    memory += row * area
    final_memory += row * area
    nothing = tl.zeros([lines, block], tl.float32)
    zeros = zeros_of_columns(memory, columns, config)
    if config.on_chip:
        tile = tl.load(memory + at, mask=inside, other=0.0)
    if config.resident:
        factors = zeros + 1.0
        if drop is not None:
            factors = tl.load(drop + columns, mask=valid, other=0.0) + zeros
        to_forget = factors[:, None] * tl.load(weight + at, mask=inside, other=0.0)
        to_forget_column = factors[:, None] * tl.load(weight + area + at, mask=inside, other=0.0)
        to_write = factors[:, None] * tl.load(weight + 2 * area + at, mask=inside, other=0.0)
        to_write_column = factors[:, None] * tl.load(weight + 3 * area + at, mask=inside, other=0.0)
    gain, bias = load_vector(norm, 0, columns, valid, config), load_vector(norm, 1, columns, valid, config)
    h = load_vector(hidden, row, columns, valid, config) + zeros
    next_0, next_1, next_2, next_3, next_4, next_5, next_6 = _load_parts(parts, row, columns, valid, config)

    for t in range(length):
        index = row + tl.cast(t, tl.int64) * batch
        forget, forget_column, write, write_column = next_0 + zeros, next_1 + zeros, next_2 + zeros, next_3 + zeros
        value, key, candidate = next_4 + zeros, next_5 + zeros, next_6 + zeros
        next_0, next_1, next_2, next_3, next_4, next_5, next_6 = _load_parts(
            parts, index + batch, columns, valid & (t + 1 < length), config
        )
        saving = t % config.chunk == 0
        checkpoint = memories
        if memories is not None:
            checkpoint += (tl.cast(t // config.chunk, tl.int64) * batch + row) * area
        started = load_start(starts, index)
        if starts is not None:
            h = tl.where(started, 0.0, h)
        before = outputs + (index - batch) * size
        if t == 0:
            before = hidden + row * size
        if config.resident:
            one, two, three, four = tl.reduce(
                (to_forget * h[:, None], to_forget_column * h[:, None],
                 to_write * h[:, None], to_write_column * h[:, None]), 0, add_4,
            )  # fmt: skip
        else:
            tl.debug_barrier()  # all threads have stored their elements of h
            one, two, three, four = _products(weight, before, drop, columns, config)
            if starts is not None:
                one, two = tl.where(started, 0.0, one), tl.where(started, 0.0, two)
                three, four = tl.where(started, 0.0, three), tl.where(started, 0.0, four)
        forget, forget_column = sigmoid(forget + one), sigmoid(forget_column + two)
        write, write_column = sigmoid(write + three), sigmoid(write_column + four)
        put, put_column = write * value, write_column * key
        if config.on_chip:
            if memories is not None:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
                if saving:
                    tl.store(checkpoint + at, tile, mask=inside)
            if starts is not None:
                tile = tl.where(started, 0.0, tile)
            tile = tile * (forget_column[:, None] * forget[None, :]) + put_column[:, None] * put[None, :]
            summed = candidate + tl.sum(tile * h[:, None], axis=0)
        else:
            gates = vectors + 7 * (row if memories is None else index) * size
            tl.store(gates + size + columns, forget_column, mask=valid)
            tl.store(gates + 3 * size + columns, put_column, mask=valid)  # until all vectors are stored
            tl.debug_barrier()  # the rows read them
            source = final_memory
            if t == 0:
                source = memory
            sums = nothing
            for start in range(0, size, lines):
                line = start + tl.arange(0, lines)[:, None]
                place, within = line * size + columns[None, :], (line < size) & valid[None, :]
                rows = tl.load(source + place, mask=within, other=0.0)
                if memories is not None:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
                    if saving:
                        tl.store(checkpoint + place, rows, mask=within)
                rows = tl.where(started, 0.0, rows)
                forget_rows = tl.load(gates + size + line, mask=line < size, other=0.0)
                put_rows = tl.load(gates + 3 * size + line, mask=line < size, other=0.0)
                rows = rows * (forget_rows * forget[None, :]) + put_rows * put[None, :]
                tl.store(final_memory + place, rows, mask=within)
                h_rows = tl.load(before + line, mask=(line < size) & (started == 0), other=0.0)
                sums += rows * h_rows
            summed = candidate + tl.sum(sums, axis=0)
            tl.debug_barrier()  # all threads have read the vectors in memory
        new = summed
        if norm is not None:
            new, _, _ = normalized(summed, gain, bias, epsilon, columns, size)
        new = tanh(new)
        if config.zoneout != "none":
            new += load_keep(keep, keep_probability, index, columns, valid, config) * (h - new)
        h = new
        if memories is not None:
            which = tl.arange(0, 8)[:, None]  # a warp stores one vector: a store of one alone takes two barriers
            values = tl.where(which == 0, forget[None, :], h[None, :])
            values = tl.where(which == 1, forget_column[None, :], values)
            values = tl.where(which == 2, write[None, :], values)
            values = tl.where(which == 3, write_column[None, :], values)
            values = tl.where(which == 4, value[None, :], values)
            values = tl.where(which == 5, key[None, :], values)
            values = tl.where(which == 6, summed[None, :], values)
            kept = vectors + 7 * index * size + which * size + columns[None, :]
            places = tl.where(which == 7, (outputs + index * size + columns)[None, :], kept)
            tl.store(places, values, mask=valid[None, :])
        else:
            tl.store(outputs + index * size + columns, h, mask=valid)

    tl.store(final + row * size + columns, h, mask=valid)
    if config.on_chip:
        tl.store(final_memory + at, tile, mask=inside)
    for t in range(length, steps):
        end = outputs + (row + tl.cast(t, tl.int64) * batch) * size + columns
        tl.store(end, tl.zeros([block], tl.float32), mask=valid)


@triton.jit
def _row_vectors(vectors, index, out, config: tl.constexpr):
    """Return the values of the gates of rows `out` of A and the value there, as the forward pass has stored them."""
    size: tl.constexpr = config.size
    at, exists = vectors + 7 * index * size + out, out < size
    forget, write = tl.load(at, mask=exists, other=0.0), tl.load(at + 2 * size, mask=exists, other=0.0)
    return forget, write, tl.load(at + 4 * size, mask=exists, other=0.0)


@triton.jit
def _column_vectors(vectors, index, columns, config: tl.constexpr):
    """Return the values of the gates of the columns of A and the key, as the forward pass has stored them."""
    size: tl.constexpr = config.size
    at, exists = vectors + 7 * index * size + columns, columns < size
    forget, write = tl.load(at + size, mask=exists, other=0.0), tl.load(at + 3 * size, mask=exists, other=0.0)
    return forget, write, tl.load(at + 5 * size, mask=exists, other=0.0)


@triton.jit
def _restore(memory, scratch, starts, vectors, row, first, count, batch, columns, config: tl.constexpr):
    """Write A before each step of a chunk to `scratch` (chunk, N, N), given A before the first one."""
    size: tl.constexpr = config.size
    lines: tl.constexpr = config.lines
    for start in range(0, size, lines):
        out = start + tl.arange(0, lines)
        at, inside = out[:, None] * size + columns[None, :], (out < size)[:, None] & (columns < size)[None, :]
        tile = tl.load(memory + at, mask=inside, other=0.0)
        for k in range(count):
            index = row + tl.cast(first + k, tl.int64) * batch
            if starts is not None:
                tile = tl.where(load_start(starts, index), 0.0, tile)
            tl.store(scratch + k * (size * size) + at, tile, mask=inside)
            forget, write, value = _row_vectors(vectors, index, out, config)
            forget_column, write_column, key = _column_vectors(vectors, index, columns, config)
            tile = tile * (forget[:, None] * forget_column[None, :])
            tile += (write * value)[:, None] * (write_column * key)[None, :]


@triton.jit
def _rows_backward(
    tile, d_tile, h, forget_column, put_column, vectors, grad_parts, index, out, config: tl.constexpr
):  # fmt: skip
    """Return the gradient of rows `out` of A_{t−1}, given A_{t−1} and the gradient of A_t without that of its read.

    Return also what is summed over all rows: the gradients of h and of the put and forget gates of the columns. Those
    of the rows are stored.
    """
    size: tl.constexpr = config.size
    exists = out < size
    forget, write, value = _row_vectors(vectors, index, out, config)
    end = grad_parts + 7 * index * size + out
    push = tl.load(end + 6 * size, mask=exists, other=0.0)
    put, kept = write * value, forget[:, None] * forget_column[None, :]
    d_tile += push[:, None] * h[None, :]
    through = d_tile * tile
    to_put, to_forget = tl.reduce((d_tile * put_column[None, :], through * forget_column[None, :]), 1, add_2)
    tl.store(end, to_forget * forget * (1.0 - forget), mask=exists)
    tl.store(end + 2 * size, to_put * value * write * (1.0 - write), mask=exists)
    tl.store(end + 4 * size, to_put * write, mask=exists)
    to_old = (tile * kept + put[:, None] * put_column[None, :]) * push[:, None]
    return d_tile * kept, to_old, d_tile * put[:, None], through * forget[:, None]


@triton.jit(do_not_specialize=["steps", "batch"])
def backward_weinet(
    weight, norm, hidden, keep, drop, lengths, starts,
    outputs, vectors, memories, scratch, grad_outputs, grad_final, grad_final_memory,
    grad_parts, grad_hidden, grad_memory, grad_norm,
    steps, batch, keep_probability, epsilon, config: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse. `scratch` (B, chunk, N, N) has no values.

    The gradient of A is in registers if they have room for it (`resident`), else in `grad_memory`.
    """
    size: tl.constexpr = config.size
    block: tl.constexpr = config.block
    lines: tl.constexpr = config.lines
    area: tl.constexpr = size * size
    chunk: tl.constexpr = config.chunk
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    valid = columns < size
    at = columns[:, None] * size + columns[None, :]
    inside = valid[:, None] & valid[None, :]
    length = steps
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    grad_memory += row * area
    nothing = tl.zeros([lines, block], tl.float32)
    if config.resident:
        d_tile = tl.zeros([block, block], tl.float32)
        if grad_final_memory is not None:
            d_tile = tl.load(grad_final_memory + row * area + at, mask=inside, other=0.0)
    else:
        copy(grad_final_memory, row * area, grad_memory, columns, config)
    zeros = zeros_of_columns(weight, columns, config)
    factors = zeros + 1.0
    if drop is not None:
        factors = load_vector(drop, row, columns, valid, config) + zeros
    gain = load_vector(norm, 0, columns, valid, config) + zeros
    bias = load_vector(norm, 1, columns, valid, config) + zeros
    dh = load_vector(grad_final, row, columns, valid, config) + zeros
    grad_gain, grad_bias = zeros, zeros
    scratch += row * chunk * area
    for t in range(length, steps):
        end = grad_parts + 7 * (row + tl.cast(t, tl.int64) * batch) * size + columns
        for which in tl.static_range(7):
            tl.store(end + which * size, tl.zeros([block], tl.float32), mask=valid)

    chunks = (length + chunk - 1) // chunk
    for reverse_chunk in range(chunks):
        number = chunks - 1 - reverse_chunk
        first = number * chunk
        count = tl.minimum(chunk, length - first)
        memory = memories + (tl.cast(number, tl.int64) * batch + row) * area
        tl.debug_barrier()  # all threads have read the matrices of the last chunk
        _restore(memory, scratch, starts, vectors, row, first, count, batch, columns, config)
        for reverse_k in range(count):
            k = count - 1 - reverse_k
            index = row + tl.cast(first + k, tl.int64) * batch
            end = grad_parts + 7 * index * size
            started = load_start(starts, index)
            h = load_hidden(hidden, outputs, index, row, batch, started, columns, valid, config)
            d = dh + (load_vector(grad_outputs, index, columns, valid, config) + zeros)
            dh = zeros
            if config.zoneout != "none":
                dh = d * load_keep(keep, keep_probability, index, columns, valid, config)
                d -= dh
            push = tl.load(vectors + (7 * index + 6) * size + columns, mask=valid, other=0.0) + zeros
            if norm is not None:
                new, normal, scale = normalized(push, gain, bias, epsilon, columns, size)
                new = tanh(new)
                push, grad_gain, grad_bias = add_norm_backward(
                    d * (1.0 - new * new), normal, scale, gain, grad_gain, grad_bias, columns, size
                )
            else:
                new = tanh(push)
                push = d * (1.0 - new * new)
            tl.store(end + 6 * size + columns, push, mask=valid)
            tl.debug_barrier()  # the rows read it, and what other threads have restored
            forget, write, key = _column_vectors(vectors, index, columns, config)
            put = write * key
            if config.resident:
                tile = tl.load(scratch + k * area + at, mask=inside, other=0.0)
                d_tile, to_old, to_put, to_forget = _rows_backward(
                    tile, d_tile, h, forget, put, vectors, grad_parts, index, columns, config
                )
                if starts is not None:
                    d_tile = tl.where(started, 0.0, d_tile)
            else:
                to_old, to_put, to_forget = nothing, nothing, nothing
                for start in range(0, size, lines):
                    out = start + tl.arange(0, lines)
                    place = out[:, None] * size + columns[None, :]
                    within = (out < size)[:, None] & valid[None, :]
                    tile = tl.load(scratch + k * area + place, mask=within, other=0.0)
                    d_rows = tl.load(grad_memory + place, mask=within, other=0.0)
                    d_rows, old, puts, forgets = _rows_backward(
                        tile, d_rows, h, forget, put, vectors, grad_parts, index, out, config
                    )
                    to_old, to_put, to_forget = to_old + old, to_put + puts, to_forget + forgets
                    tl.store(grad_memory + place, tl.where(started, 0.0, d_rows), mask=within)
            to_old, to_put, to_forget = tl.reduce((to_old, to_put, to_forget), 0, add_3)
            tl.store(end + size + columns, to_forget * forget * (1.0 - forget), mask=valid)
            tl.store(end + 3 * size + columns, to_put * key * write * (1.0 - write), mask=valid)
            tl.store(end + 5 * size + columns, to_put * write, mask=valid)
            dh += to_old + factors * product(weight, end, 4 * size, True, columns, config)
            if starts is not None:
                dh = tl.where(started, 0.0, dh)

    tl.store(grad_hidden + row * size + columns, dh, mask=valid)
    if config.resident:
        tl.store(grad_memory + at, d_tile, mask=inside)
    if norm is not None:
        tl.store(grad_norm + 2 * row * size + columns, grad_gain, mask=valid)
        tl.store(grad_norm + (2 * row + 1) * size + columns, grad_bias, mask=valid)
