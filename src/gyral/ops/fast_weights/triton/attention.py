"""Kernels of fast weights: one program runs one sequence through all steps.

Forward, A is in registers, or in memory if it is too large. Backward, an older A cannot be computed from a newer one
without loss: to divide by λ makes errors grow. But only A_tᵀ g of a vector g is needed, and

    A_tᵀ g = λ^{k+1} Aᵀ g + η Σ_j λ^{k−j} h_j (h_j · g)

with A before a chunk of steps, which the forward pass has stored, and the k + 1 hidden vectors h_j since then. These
vectors and, up to some sizes, A and the gradient of A_t are in registers. With chunks of C steps that is C N / 2
products more for a step than with A_t itself on average, and N² / C numbers that are stored for it in place of N².
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
from gyral.ops.triton.rows import activate, activation_slope, add_2


@triton.jit
def _update(source, memory, checkpoint, saving, started, old, h, q, decay, rate, columns, config: tl.constexpr):
    """Return A_t q, once all threads have stored h, in `old`, and q; write A_t, given A_{t−1} in `source`."""
    tl.debug_barrier()
    size: tl.constexpr = config.size
    lines: tl.constexpr = config.lines
    sums = tl.zeros([lines, columns.shape[0]], tl.float32)
    for start in range(0, size, lines):
        line = start + tl.arange(0, lines)[:, None]
        at, inside = line * size + columns[None, :], (line < size) & (columns < size)[None, :]
        tile = tl.load(source + at, mask=inside, other=0.0)
        if checkpoint is not None:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
            if saving:
                tl.store(checkpoint + at, tile, mask=inside)
        tile = decay * tl.where(started, 0.0, tile)
        tile += tl.load(old + line, mask=line < size, other=0.0) * (rate * h)[None, :]
        tl.store(memory + at, tile, mask=inside)
        sums += tile * tl.load(q + line, mask=line < size, other=0.0)
    return tl.sum(sums, axis=0)


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_fast_weights(
    parts, weight, norm, hidden, memory, keep, drop, lengths, starts,
    outputs, final, final_memory, settled, memories,
    steps, batch, keep_probability, epsilon, decay, rate, config: tl.constexpr,
):  # fmt: skip
    """Run all steps, with W and A transposed: sums over their rows are in the threads of their columns.

    `settled` (T, B, S + 1, N) gets W h_{t−1} + P_t, and the inputs of the normalizations. An A that is not `on_chip` is
    in `final_memory`, and W is read in parts.
    """
    size: tl.constexpr = config.size
    block: tl.constexpr = config.block
    inner_steps: tl.constexpr = config.inner_steps
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block)
    valid = columns < size
    at = columns[:, None] * size + columns[None, :]
    inside = valid[:, None] & valid[None, :]
    length = steps
    if lengths is not None:
        length = tl.load(lengths + row).to(tl.int32)
    area: tl.constexpr = size * size
    memory += row * area
    final_memory += row * area
    factors = load_vector(drop, row, columns, valid, config)
    if config.on_chip:
        weights = tl.load(weight + at, mask=inside, other=0.0)
        if drop is not None:
            weights *= factors[:, None]
        tile = tl.load(memory + at, mask=inside, other=0.0)
    zeros = zeros_of_columns(weight, columns, config)
    gain, bias = load_vector(norm, 0, columns, valid, config), load_vector(norm, 1, columns, valid, config)
    h = load_vector(hidden, row, columns, valid, config)
    ahead = load_vector(parts, row, columns, valid, config)

    for t in range(length):
        index = row + tl.cast(t, tl.int64) * batch
        part = ahead + zeros
        ahead = load_vector(parts, index + batch, columns, valid & (t + 1 < length), config)
        saving = t % config.chunk == 0
        checkpoint = memories
        if memories is not None:
            checkpoint += (tl.cast(t // config.chunk, tl.int64) * batch + row) * area
        started = load_start(starts, index)
        out = outputs + index * size
        if starts is not None:
            h = tl.where(started, 0.0, h)
        if config.on_chip:
            if memories is not None:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
                if saving:
                    tl.store(checkpoint + at, tile, mask=inside)
            if starts is not None:
                tile = tl.where(started, 0.0, tile)
            tile = decay * tile + h[:, None] * (rate * h)[None, :]
            drive = part + tl.sum(weights * h[:, None], axis=0)
        else:
            tl.debug_barrier()  # all threads have read the vector in this place
            tl.store(out + columns, h * factors if drop is not None else h, mask=valid)
            drive = part + product(weight, out, size, True, columns, config)
        q = activate(drive, config)
        for s in tl.static_range(inner_steps):
            if config.on_chip:
                read = tl.sum(tile * q[:, None], axis=0)
            else:
                place = final + row * size
                tl.debug_barrier()  # all threads have read the vectors in these places
                tl.store(place + columns, q, mask=valid)
                if s == 0:
                    source = final_memory
                    if t == 0:
                        source = memory
                    tl.store(out + columns, h, mask=valid)
                    read = _update(
                        source, final_memory, checkpoint, saving, started, out, h, place, decay, rate, columns, config
                    )
                else:
                    read = product(final_memory, place, size, True, columns, config)
            y = drive + read
            if settled is not None:
                if s == 0:
                    summed = y
                else:
                    tl.store(settled + (index * (inner_steps + 1) + s + 1) * size + columns, y, mask=valid)
            y, _, _ = normalized(y, gain, bias, epsilon, columns, size)
            q = activate(y, config)
        if config.zoneout != "none":
            q += load_keep(keep, keep_probability, index, columns, valid, config) * (h - q)
        h = q
        if settled is not None:
            here = settled + index * (inner_steps + 1) * size + columns
            which = tl.arange(0, 4)[:, None]
            pointers = tl.where(which == 2, (out + columns)[None, :], here[None, :] + which * size)
            values = tl.where(which == 0, drive[None, :], tl.where(which == 1, summed[None, :], h[None, :]))
            tl.store(pointers, values, mask=valid[None, :] & (which < 3))
        else:
            tl.store(outputs + index * size + columns, h, mask=valid)

    tl.store(final + row * size + columns, h, mask=valid)
    if config.on_chip:
        tl.store(final_memory + at, tile, mask=inside)
    for t in range(length, steps):
        end = outputs + (row + tl.cast(t, tl.int64) * batch) * size + columns
        tl.store(end, tl.zeros([block], tl.float32), mask=valid)


@triton.jit
def _power(log_decay, count):
    """Return λ^count, given log₂ λ, of −1e30 for λ = 0."""
    return tl.exp2(log_decay * count.to(tl.float32))


@triton.jit
def _memory_backward(
    grad_memory, g, q, before, h, started, to_left, decay, is_last: tl.constexpr, columns, config: tl.constexpr
):  # fmt: skip
    """Add g qᵀ to the gradient G of A_t. If it `is_last`, return Gᵀ h, store G h, and write that of A_{t−1}.

    g is in memory, and h in `before`, which is read unless the row has just `started`.
    """
    size: tl.constexpr = config.size
    lines: tl.constexpr = config.lines
    sums = tl.zeros([lines, columns.shape[0]], tl.float32)
    for start in range(0, size, lines):
        line = start + tl.arange(0, lines)
        at = line[:, None] * size + columns[None, :]
        exists = line < size
        inside = exists[:, None] & (columns < size)[None, :]
        tile = tl.load(grad_memory + at, mask=inside, other=0.0)
        tile += tl.load(g + line, mask=exists, other=0.0)[:, None] * q[None, :]
        if is_last:
            sums += tile * tl.load(before + line, mask=exists & (started == 0), other=0.0)[:, None]
            tl.store(to_left + line, tl.sum(tile * h[None, :], axis=1), mask=exists)
            tile = tl.where(started, 0.0, decay * tile)
        tl.store(grad_memory + at, tile, mask=inside)
    return tl.sum(sums, axis=0)


@triton.jit(do_not_specialize=["steps", "batch"])
def backward_fast_weights(
    weight, norm, hidden, keep, drop, lengths, starts, since,
    outputs, settled, memories, grad_outputs, grad_final, grad_final_memory,
    grad_parts, grad_hidden, grad_memory, grad_norm,
    steps, batch, keep_probability, epsilon, decay, log_decay, rate, config: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse.

    `since` (T, B) has the last step before which the row was reset, up to each step, or −1.
    """
    size: tl.constexpr = config.size
    block: tl.constexpr = config.block
    area: tl.constexpr = size * size
    inner_steps: tl.constexpr = config.inner_steps
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
    grad_hidden += row * size
    if config.on_chip:
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
    if config.resident:
        weights = tl.load(weight + at, mask=inside, other=0.0)
    for t in range(length, steps):
        end = grad_parts + (row + tl.cast(t, tl.int64) * batch) * size + columns
        tl.store(end, tl.zeros([block], tl.float32), mask=valid)

    place = tl.arange(0, chunk)
    chunks = (length + chunk - 1) // chunk
    for reverse_chunk in range(chunks):
        number = chunks - 1 - reverse_chunk
        first = number * chunk
        # A before the chunk, and the hidden vectors before each of its steps
        before = memories + (tl.cast(number, tl.int64) * batch + row) * area
        if config.resident:
            before = tl.load(before + at, mask=inside, other=0.0)
        exists = (first + place < length)[:, None] & valid[None, :]
        index_before = row + (first + place - 1).to(tl.int64) * batch
        vectors = tl.load(
            outputs + index_before[:, None] * size + columns[None, :],
            mask=exists & (first + place > 0)[:, None], other=0.0,
        )  # fmt: skip
        vectors += tl.load(
            hidden + row * size + columns[None, :] + 0 * place[:, None],
            mask=exists & (first + place == 0)[:, None], other=0.0,
        )  # fmt: skip
        for reverse_k in range(tl.minimum(chunk, length - first)):
            k = tl.minimum(chunk, length - first) - 1 - reverse_k
            index = row + tl.cast(first + k, tl.int64) * batch
            started = load_start(starts, index)
            h = load_hidden(hidden, outputs, index, row, batch, started, columns, valid, config)
            place_before = outputs + (index - batch) * size
            if first + k == 0:
                place_before = hidden + row * size
            drive = load_vector(settled, index * (inner_steps + 1), columns, valid, config) + zeros
            d = dh + (load_vector(grad_outputs, index, columns, valid, config) + zeros)
            dh = zeros
            if config.zoneout != "none":
                dh = d * load_keep(keep, keep_probability, index, columns, valid, config)
                d -= dh
            # the weights of the vectors and of A in A_t
            is_since = place <= k
            scale_before = _power(log_decay, k + 1)
            seen, reaches = vectors, True
            if starts is not None:
                last = tl.load(since + index).to(tl.int32)
                is_since = is_since & (first + place > last)
                seen = tl.where(is_since[:, None], vectors, 0.0)
                reaches = last < first
            scales = tl.where(is_since, rate * _power(log_decay, tl.maximum(k - place, 0)), 0.0)

            q_first = activate(drive, config)
            d_drive = zeros
            for s in tl.static_range(inner_steps):
                at_step = index * (inner_steps + 1) + inner_steps - 1 - s  # of the vector from which y follows
                y = load_vector(settled, at_step + 1, columns, valid, config) + zeros
                y, normal, scale = normalized(y, gain, bias, epsilon, columns, size)
                d *= activation_slope(y, activate(y, config), config)
                g, grad_gain, grad_bias = add_norm_backward(d, normal, scale, gain, grad_gain, grad_bias, columns, size)
                q = q_first
                if s < inner_steps - 1:
                    y = load_vector(settled, at_step, columns, valid, config) + zeros
                    y, _, _ = normalized(y, gain, bias, epsilon, columns, size)
                    q = activate(y, config)
                d_drive += g
                if config.on_chip:
                    d_tile += g[:, None] * q[None, :]
                along = tl.sum(seen * g[None, :], axis=1) * scales
                d = tl.sum(seen * along[:, None], axis=0)
                if config.resident:
                    d += tl.sum(tl.where(reaches, before, 0.0) * (scale_before * g)[:, None], axis=0)
                else:
                    tl.debug_barrier()  # the last product has read the vector in this place
                    tl.store(grad_parts + index * size + columns, g, mask=valid)
                    d += scale_before * product(before, grad_parts + index * size, size, reaches, columns, config)
                if not config.on_chip:
                    to_right = _memory_backward(
                        grad_memory, grad_parts + index * size, q, place_before, h, started, grad_hidden, decay,
                        s == inner_steps - 1, columns, config,
                    )  # fmt: skip
            d_drive += d * activation_slope(drive, q_first, config)
            if not config.resident:
                tl.debug_barrier()  # all threads have read the vector in this place
            tl.store(grad_parts + index * size + columns, d_drive, mask=valid)

            if config.resident:
                to_product, to_right = tl.reduce((weights * d_drive[:, None], d_tile * h[:, None]), 0, add_2)
            else:
                to_product = product(weight, grad_parts + index * size, size, True, columns, config)
            if config.on_chip:
                to_left = tl.sum(d_tile * h[None, :], axis=1) + zeros
                if not config.resident:
                    to_right = tl.sum(d_tile * h[:, None], axis=0)
            else:
                to_left = tl.load(grad_hidden + columns, mask=valid, other=0.0) + zeros
            dh += factors * to_product + rate * (to_left + to_right)
            if starts is not None:
                dh = tl.where(started, 0.0, dh)
            if config.on_chip:
                d_tile *= decay
                if starts is not None:
                    d_tile = tl.where(started, 0.0, d_tile)

    tl.debug_barrier()  # all threads have read the vector in this place
    tl.store(grad_hidden + columns, dh, mask=valid)
    if config.on_chip:
        tl.store(grad_memory + at, d_tile, mask=inside)
    tl.store(grad_norm + 2 * row * size + columns, grad_gain, mask=valid)
    tl.store(grad_norm + (2 * row + 1) * size + columns, grad_bias, mask=valid)
