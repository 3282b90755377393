"""The kernels of one step, for hidden sizes whose weights do not fit into the registers of a program.

torch computes the recurrent product of all rows before each step, and backward after it; `loop` runs the steps. A
program has one row, and for λ = 1 some rows of the memory of one sequence: so a few programs run on each
multiprocessor, whatever the batch is. Rows of the memory are `stride` numbers apart, a multiple of four, with zeros
beyond N, so that threads load 16 bytes at once.
"""

import triton
import triton.language as tl

from gyral.ops.rum.triton.memory import begin_memory, memory_gradients, rotate_memory, rotate_memory_backward
from gyral.ops.rum.triton.rotation import apply, apply_backward
from gyral.ops.rum.triton.step import (
    StepArguments,
    begin_step,
    load_parts,
    load_rows,
    load_starts,
    new_hidden,
    new_hidden_backward,
    part_backward,
    restore_step,
    store_parts,
)
from gyral.ops.triton.rows import add_5


@triton.jit
def _load_length(lengths, row, steps, config: tl.constexpr):
    """Return the number of steps of the sequence of a row."""
    length = steps
    if config.has_lengths:
        length = tl.load(lengths + row).to(tl.int32)
    return length


@triton.jit
def _load_previous(outputs, hidden, t, row, batch, columns, active, size: tl.constexpr):
    """Return h_{t−1} (N,), zero where `active` is False."""
    index = row + (tl.cast(t, tl.int64) - 1) * batch
    h = load_rows(outputs, index, columns, active & (t > 0), size)
    return h + load_rows(hidden, row, columns, active & (t == 0), size)


@triton.jit
def _load_sums(parts, products, index, row, columns, active, started, config: tl.constexpr):
    """Return the sums of target and gate, and the embedded input, given the products W_hh h_{t−1} (B, (G − 1) N)."""
    target, gate, embedded = load_parts(parts, index, columns, active, config)
    valid = active & (started == 0) & (columns < config.size)
    at = products + row * config.recurrent + columns
    target += tl.load(at, mask=valid, other=0.0).to(tl.float32)
    if config.gated:
        gate += tl.load(at + config.size, mask=valid, other=0.0).to(tl.float32)
    return target, gate, embedded


@triton.jit
def _places(start, end, columns, stride: tl.constexpr, block: tl.constexpr):
    """Return offsets of rows `start`, `start` + 1, … before `end` of a memory, their mask, and numbers (block, 1)."""
    row = start + tl.arange(0, block)[:, None]
    return row * stride + columns[None, :], (row < end) & (columns < stride)[None, :], row


@triton.jit
def _load_memory(memory, start, end, columns, stride: tl.constexpr, block: tl.constexpr):
    """Return rows `start`, `start` + 1, … before `end` of a memory."""
    at, inside, _ = _places(start, end, columns, stride, block)
    return tl.load(memory + at, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["t", "steps", "batch"])
def forward_step(
    parts, products, hidden, norms, keep, lengths, starts, outputs, final, cosines, scales, memory_reads, rounded,
    t, steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, has_memory: tl.constexpr, rounds: tl.constexpr, block_size: tl.constexpr,
):  # fmt: skip
    """Take the step t of a row, given W_hh h_{t−1} in `products`, and for λ = 1 R_t h_{t−1} in `memory_reads`.

    If it `rounds`, it stores h_t also in `rounded` (B, N), as a factor of the next product.
    """
    size: tl.constexpr = config.size
    row = tl.program_id(0).to(tl.int64)
    index = row + tl.cast(t, tl.int64) * batch
    columns = tl.arange(0, block_size)
    length = _load_length(lengths, row, steps, config)
    active = t < length
    started = load_starts(starts, index, active, config)
    step = StepArguments(parts, scales, keep, norms, norms, keep_probability, eta, epsilon, index, columns, active)
    target, gate, embedded = _load_sums(parts, products, index, row, columns, active, started, config)
    h = _load_previous(outputs, hidden, t, row, batch, columns, active & (started == 0), size)
    tl.debug_barrier()  # several threads may hold an element: all have loaded the sums before one overwrites them
    gate, rotation = begin_step(target, gate, embedded, h, cosines, step, config)
    rotated = load_rows(memory_reads, index, columns, active, size) if has_memory else apply(rotation, h)
    new = tl.where(active, new_hidden(embedded + rotated, gate, h, step, config), 0.0)
    tl.store(outputs + index * size + columns, new, mask=columns < size)
    tl.store(final + row * size + columns, new, mask=(t + 1 == length) & (columns < size))
    if rounds:
        tl.store(rounded + row * size + columns, new.to(rounded.dtype.element_ty), mask=columns < size)


@triton.jit(do_not_specialize=["t", "steps", "batch", "share"])
def forward_memory(
    parts, products, hidden, norms, lengths, starts, outputs, scales, memory, memory_reads, slots, replaced,
    t, steps, batch, epsilon, share,
    config: tl.constexpr, stride: tl.constexpr, block_size: tl.constexpr, block_tile: tl.constexpr,
):  # fmt: skip
    """Change R_{t−1} in `memory` (B, N, stride) to R_t, and store R_t h_{t−1} in `memory_reads`.

    A program has `share` rows of a memory. `replaced` stores R before a reset, at the index in `slots` (T, B).
    """
    size: tl.constexpr = config.size
    programs = tl.cdiv(size, share)
    row = (tl.program_id(0) // programs).to(tl.int64)
    first = (tl.program_id(0) % programs) * share
    end = tl.minimum(first + share, size)
    index = row + tl.cast(t, tl.int64) * batch
    columns = tl.arange(0, block_size)
    active = t < _load_length(lengths, row, steps, config)
    if active:
        memory += row * (size * stride)
        next_tile = _load_memory(memory, first, end, columns, stride, block_tile)
        started = load_starts(starts, index, active, config)
        slot = replaced
        if config.has_starts:
            slot += tl.load(slots + index, mask=started, other=0) * (size * stride)
        # no step is active, so that nothing is stored: `forward_step` computes and stores the same
        step = StepArguments(
            parts, scales, norms, norms, norms, 0.0, 0.0, epsilon, index, columns, tl.program_id(0) < 0
        )
        target, gate, embedded = _load_sums(parts, products, index, row, columns, active, started, config)
        h = _load_previous(outputs, hidden, t, row, batch, columns, started == 0, size)
        gate, rotation = begin_step(target, gate, embedded, h, scales, step, config)
        for start in range(first, end, block_tile):
            tile = next_tile
            next_tile = _load_memory(memory, start + block_tile, end, columns, stride, block_tile)
            at, inside, out = _places(start, end, columns, stride, block_tile)
            tile = begin_memory(tile, at, inside, out, columns, started, slot, False, slot, config)
            tile, read = rotate_memory(tile, h, rotation)
            tl.store(memory_reads + index * size + out, read, mask=out < end)
            tl.store(memory + at, tile, mask=inside)


@triton.jit(do_not_specialize=["given_outputs", "given_final", "t", "steps", "batch"])
def backward_step(
    parts, products, hidden, norms, keep, lengths, starts, outputs, scales, memory_reads,
    grad_outputs, grad_final, grad_hidden, grad_norms, rounded,
    given_outputs, given_final, t, steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, has_memory: tl.constexpr, rounds: tl.constexpr, block_size: tl.constexpr,
):  # fmt: skip
    """Store the gradients of the parts of step t in their place, given W_hhᵀ times those of step t + 1 in `products`.

    `grad_hidden` (B, N) holds the gradient of h_t without that product, and then that of h_{t−1}. For λ = 1
    `finish_backward_step` completes the gradients: this kernel stores only that of the gate, and in `memory_reads`
    ∂L/∂y_t, y_t = R_t h_{t−1}. If it `rounds`, it stores the factors of the product in `rounded` (B, (G − 1) N), too.
    `grad_norms` is (B, 3, 2, N).
    """
    size: tl.constexpr = config.size
    row = tl.program_id(0).to(tl.int64)
    index = row + tl.cast(t, tl.int64) * batch
    columns = tl.arange(0, block_size)
    inside = columns < size
    length = _load_length(lengths, row, steps, config)
    active = t < length
    grad_norms += row * (6 * size)
    step = StepArguments(parts, scales, keep, norms, grad_norms, keep_probability, eta, epsilon, index, columns, active)
    follows = t + 1 < steps
    grad_next = load_rows(grad_final, row, columns, (given_final != 0) & (follows == 0), size)
    to_next = follows & (load_starts(starts, index + batch, t + 1 < length, config) == 0)
    grad_next += load_rows(grad_hidden, row, columns, to_next, size)
    grad_next += load_rows(products, row, columns, to_next, size).to(tl.float32)
    d = load_rows(grad_outputs, index, columns, active & (given_outputs != 0), size)
    d = tl.where(active, d + grad_next, 0.0)
    started = load_starts(starts, index, active, config)
    saved_target, saved_gate, embedded = load_parts(parts, index, columns, active, config)
    h = _load_previous(outputs, hidden, t, row, batch, columns, active & (started == 0), size)
    gate, rotation = restore_step(saved_target, saved_gate, embedded, h, step, config)
    rotated = load_rows(memory_reads, index, columns, active, size) if has_memory else apply(rotation, h)
    dy, dgate, dh = new_hidden_backward(d, embedded + rotated, gate, saved_gate, h, step, config)
    dtarget, dembedded = dy, dy
    if not has_memory:
        dembedded, dtarget, dh_rotated = apply_backward(dy, h, rotation)
        dtarget = part_backward(dtarget, saved_target, step, 0, config)
        dh += dh_rotated
    # d is zero in rows that have ended, and with it all gradients but that of h_t
    dh = tl.where(active, dh, grad_next)
    tl.debug_barrier()  # all threads that hold an element have loaded it
    tl.store(grad_hidden + row * size + columns, dh, mask=inside)
    if has_memory:
        tl.store(memory_reads + index * size + columns, dy, mask=inside)
        if config.gated:
            tl.store(parts + index * config.width + size + columns, dgate, mask=inside)
    else:
        store_parts(dtarget, dgate, dembedded + dy, parts, index, columns, row >= 0, config)
    if rounds:
        at = rounded + row * config.recurrent + columns
        if not has_memory:
            tl.store(at, dtarget.to(rounded.dtype.element_ty), mask=inside)
        if config.gated:
            tl.store(at + size, dgate.to(rounded.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["t", "steps", "batch", "share", "checkpoint_every"])
def backward_memory(
    parts, hidden, norms, lengths, starts, outputs, memory, memory_reads, slots, replaced, checkpoints,
    grad_memory, sums, t, steps, batch, checkpoint_every, share,
    config: tl.constexpr, stride: tl.constexpr, block_size: tl.constexpr, block_tile: tl.constexpr,
    groups: tl.constexpr,
):  # fmt: skip
    """Change R_t in `memory` to R_{t−1}, and its gradient likewise, given ∂L/∂y_t in `memory_reads`.

    `sums` (B, programs of a row, 5, stride) gets the terms of the sums of `memory_gradients`.
    """
    size: tl.constexpr = config.size
    area: tl.constexpr = size * stride
    programs = tl.cdiv(size, share)
    row = (tl.program_id(0) // programs).to(tl.int64)
    first = (tl.program_id(0) % programs) * share
    end = tl.minimum(first + share, size)
    index = row + tl.cast(t, tl.int64) * batch
    columns = tl.arange(0, block_size)
    length = _load_length(lengths, row, steps, config)
    active = t < length
    if active:
        memory += row * area
        grad_memory += row * area
        # R_t is the checkpoint saved before step t + 1, if there is one
        source = memory
        if ((t + 1) % checkpoint_every == 0) & (t + 1 < length):
            source = checkpoints + (tl.cast((t + 1) // checkpoint_every - 1, tl.int64) * batch + row) * area
        # or the memory that the identity has replaced before step t + 1
        if config.has_starts:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
            if load_starts(starts, index + batch, t + 1 < length, config):
                source = replaced + tl.load(slots + index + batch) * area
        next_tile = _load_memory(source, first, end, columns, stride, block_tile)
        next_d = _load_memory(grad_memory, first, end, columns, stride, block_tile)
        started = load_starts(starts, index, active, config)
        # only norms and columns are read
        step = StepArguments(parts, parts, norms, norms, norms, 0.0, 0.0, 0.0, index, columns, active)
        target, gate, embedded = load_parts(parts, index, columns, active, config)
        h = _load_previous(outputs, hidden, t, row, batch, columns, started == 0, size)
        gate, rotation = restore_step(target, gate, embedded, h, step, config)
        nothing = tl.zeros([groups, block_size], tl.float32)
        terms = (nothing, nothing, nothing, nothing, nothing)
        for start in range(first, end, block_tile):
            tile, d_tile = next_tile, next_d
            next_tile = _load_memory(source, start + block_tile, end, columns, stride, block_tile)
            next_d = _load_memory(grad_memory, start + block_tile, end, columns, stride, block_tile)
            at, inside, out = _places(start, end, columns, stride, block_tile)
            dy = tl.load(memory_reads + index * size + out, mask=out < end, other=0.0)
            tile, d_tile, terms = rotate_memory_backward(tile, d_tile, dy, h, rotation, terms, groups)
            tl.store(memory + at, tile, mask=inside)
            tl.store(grad_memory + at, tl.where(started, 0.0, d_tile), mask=inside)
        to_h, m_u, m_w, mt_u, mt_w = tl.reduce(terms, 0, add_5)
        to = sums + tl.program_id(0).to(tl.int64) * (5 * stride) + columns
        tl.store(to, to_h, mask=columns < stride)
        tl.store(to + stride, m_u, mask=columns < stride)
        tl.store(to + 2 * stride, m_w, mask=columns < stride)
        tl.store(to + 3 * stride, mt_u, mask=columns < stride)
        tl.store(to + 4 * stride, mt_w, mask=columns < stride)


@triton.jit
def _add_sums(sums, row, programs, columns, active, stride: tl.constexpr, block: tl.constexpr):
    """Return what `memory_gradients` takes: five sums (block, N) of what the programs of a row have stored."""
    total = tl.zeros([block, columns.shape[0]], tl.float32)
    to_h, m_u, m_w, mt_u, mt_w = total, total, total, total, total
    for start in range(0, programs, block):
        program = start + tl.arange(0, block)[:, None]
        at = sums + (row * programs + program) * (5 * stride) + columns[None, :]
        inside = active & (program < programs) & (columns < stride)[None, :]
        to_h += tl.load(at, mask=inside, other=0.0)
        m_u += tl.load(at + stride, mask=inside, other=0.0)
        m_w += tl.load(at + 2 * stride, mask=inside, other=0.0)
        mt_u += tl.load(at + 3 * stride, mask=inside, other=0.0)
        mt_w += tl.load(at + 4 * stride, mask=inside, other=0.0)
    return to_h, m_u, m_w, mt_u, mt_w


@triton.jit(do_not_specialize=["t", "steps", "batch", "share"])
def finish_backward_step(
    parts, hidden, norms, lengths, starts, outputs, scales, memory_reads, grad_hidden, grad_norms, rounded, sums,
    t, steps, batch, share,
    config: tl.constexpr, rounds: tl.constexpr, stride: tl.constexpr, block_size: tl.constexpr,
    block_sums: tl.constexpr,
):  # fmt: skip
    """Complete the gradients of step t for λ = 1: store those of target and embedded input, and add to that of h_{t−1}.

    See `backward_step` and `backward_memory`.
    """
    size: tl.constexpr = config.size
    row = tl.program_id(0).to(tl.int64)
    index = row + tl.cast(t, tl.int64) * batch
    columns = tl.arange(0, block_size)
    inside = columns < size
    active = t < _load_length(lengths, row, steps, config)
    grad_norms += row * (6 * size)
    step = StepArguments(parts, scales, norms, norms, grad_norms, 0.0, 0.0, 0.0, index, columns, active)
    started = load_starts(starts, index, active, config)
    saved_target, gate, embedded = load_parts(parts, index, columns, active, config)
    h = _load_previous(outputs, hidden, t, row, batch, columns, active & (started == 0), size)
    gate, rotation = restore_step(saved_target, gate, embedded, h, step, config)
    terms = _add_sums(sums, row, tl.cdiv(size, share), columns, active, stride, block_sums)
    dembedded, dtarget, to_h = memory_gradients(terms, rotation)
    dtarget = part_backward(dtarget, saved_target, step, 0, config)
    dy = load_rows(memory_reads, index, columns, active, size)
    dh = load_rows(grad_hidden, row, columns, row >= 0, size) + to_h
    tl.debug_barrier()  # all threads that hold an element have loaded it
    at = parts + index * config.width + columns
    tl.store(at, dtarget, mask=inside)
    tl.store(at + config.recurrent, dembedded + dy, mask=inside)
    tl.store(grad_hidden + row * size + columns, dh, mask=inside)
    if rounds:
        tl.store(rounded + row * config.recurrent + columns, dtarget.to(rounded.dtype.element_ty), mask=inside)
