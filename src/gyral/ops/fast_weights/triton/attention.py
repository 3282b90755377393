"""Kernels of fast weights: one program runs one sequence through all steps.

Forward, A is in registers. Backward, an older A cannot be computed from a newer one without loss: to divide by λ
makes errors grow. But only A_tᵀ g of a vector g is needed, and

    A_tᵀ g = λ^{k+1} Aᵀ g + η Σ_j λ^{k−j} h_j (h_j · g)

with A before a chunk of steps, which the forward pass has stored, and the k + 1 hidden vectors h_j since then. A, these
vectors and the gradient of A_t are in registers. Of a chunk of C steps that is C/2 N operations more than with A_t
itself, and N²/C numbers that are stored for a step in place of N².
"""

import triton
import triton.language as tl

from gyral.ops.fast_weights.triton.step import (
    add_norm_backward,
    load_hidden,
    load_keep,
    load_start,
    load_vector,
    normalized,
    product,
)
from gyral.ops.triton.rows import activate, activation_slope, add_2


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_fast_weights(
    parts, weight, norm, hidden, memory, keep, drop, lengths, starts,
    outputs, final, final_memory, settled, memories,
    steps, batch, keep_probability, epsilon, decay, rate, config: tl.constexpr,
):  # fmt: skip
    """Run all steps, with W and A transposed: sums over their rows are in the threads of their columns.

    `settled` (T, B, S + 1, N) gets W h_{t−1} + P_t, and the inputs of the normalizations."""
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
    weights = tl.load(weight + at, mask=inside, other=0.0)
    if drop is not None:
        weights *= load_vector(drop, row, columns, valid, config)[:, None]
    # Zeros (N,) whose elements are in the threads of the columns of a matrix. The compiler gives a sum with them this
    # layout, in which each warp has whole rows: their sums need no barrier.
    zeros = tl.where(tl.sum(weights, axis=0) < float("-inf"), 1.0, 0.0)
    gain, bias = load_vector(norm, 0, columns, valid, config), load_vector(norm, 1, columns, valid, config)
    h = load_vector(hidden, row, columns, valid, config)
    tile = tl.load(memory + row * size * size + at, mask=inside, other=0.0)
    ahead = load_vector(parts, row, columns, valid, config)

    for t in range(length):
        index = row + tl.cast(t, tl.int64) * batch
        part = ahead + zeros
        ahead = load_vector(parts, index + batch, columns, valid & (t + 1 < length), config)
        if memories is not None:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
            if t % config.chunk == 0:
                place = (tl.cast(t // config.chunk, tl.int64) * batch + row) * (size * size)
                tl.store(memories + place + at, tile, mask=inside)
        if starts is not None:
            started = load_start(starts, index)
            h = tl.where(started, 0.0, h)
            tile = tl.where(started, 0.0, tile)
        tile = decay * tile + h[:, None] * (rate * h)[None, :]
        drive = part + tl.sum(weights * h[:, None], axis=0)
        q = activate(drive, config)
        for s in tl.static_range(inner_steps):
            y = drive + tl.sum(tile * q[:, None], axis=0)
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
            out = outputs + index * size + columns
            which = tl.arange(0, 4)[:, None]
            pointers = tl.where(which == 2, out[None, :], here[None, :] + which * size)
            values = tl.where(which == 0, drive[None, :], tl.where(which == 1, summed[None, :], h[None, :]))
            tl.store(pointers, values, mask=valid[None, :] & (which < 3))
        else:
            tl.store(outputs + index * size + columns, h, mask=valid)

    tl.store(final + row * size + columns, h, mask=valid)
    tl.store(final_memory + row * size * size + at, tile, mask=inside)
    for t in range(length, steps):
        end = outputs + (row + tl.cast(t, tl.int64) * batch) * size + columns
        tl.store(end, tl.zeros([block], tl.float32), mask=valid)


@triton.jit
def _power(log_decay, count):
    """Return λ^count, given log₂ λ, of −1e30 for λ = 0."""
    return tl.exp2(log_decay * count.to(tl.float32))


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
    d_tile = tl.zeros([block, block], tl.float32)
    if grad_final_memory is not None:
        d_tile = tl.load(grad_final_memory + row * area + at, mask=inside, other=0.0)
    zeros = tl.where(tl.sum(d_tile, axis=0) < float("-inf"), 1.0, 0.0)  # as in the forward pass
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
                d_tile += g[:, None] * q[None, :]
                along = tl.sum(seen * g[None, :], axis=1) * scales
                d = tl.sum(seen * along[:, None], axis=0)
                if config.resident:
                    d += tl.sum(tl.where(reaches, before, 0.0) * (scale_before * g)[:, None], axis=0)
                else:
                    tl.debug_barrier()  # the last product has read the vector in this place
                    tl.store(grad_parts + index * size + columns, g, mask=valid)
                    d += scale_before * product(before, grad_parts + index * size, size, reaches, columns, config)
            d_drive += d * activation_slope(drive, q_first, config)
            tl.store(grad_parts + index * size + columns, d_drive, mask=valid)

            if config.resident:
                to_product, to_right = tl.reduce((weights * d_drive[:, None], d_tile * h[:, None]), 0, add_2)
            else:
                to_product = product(weight, grad_parts + index * size, size, True, columns, config)
                to_right = tl.sum(d_tile * h[:, None], axis=0)
            to_left = tl.sum(d_tile * h[None, :], axis=1) + zeros
            dh += factors * to_product + rate * (to_left + to_right)
            d_tile *= decay
            if starts is not None:
                dh = tl.where(started, 0.0, dh)
                d_tile = tl.where(started, 0.0, d_tile)

    tl.store(grad_hidden + row * size + columns, dh, mask=valid)
    tl.store(grad_memory + row * area + at, d_tile, mask=inside)
    tl.store(grad_norm + 2 * row * size + columns, grad_gain, mask=valid)
    tl.store(grad_norm + (2 * row + 1) * size + columns, grad_bias, mask=valid)
