"""The kernels of one step that read the memories of λ = 1, and write them every few steps, for large hidden sizes.

A memory that is read and written at each step costs 8 N² bytes forward, and 16 N² backward, where there is its
gradient, too. So it stays as it is over several steps, a run, whose rotations are kept beside it:

* forward, R_t = R Q_s … Q_t with the memory R before the first step s of the run, and R_t h = R (Q_s … Q_t h);
* backward, R_t = R P with the memory R after the last step e, P = Q_eᵀ … Q_{t+1}ᵀ. The gradient of R_t, without the
  term of y_t = R_t h_{t−1}, is D P, D = D_e + Σ ∂L/∂y_j (P_j h_{j−1})ᵀ over the steps j > t, with P at step j as P_j.
  Of the vectors P u, P w and P h, step t computes what it would compute of u, w and h where R_t is in memory; Pᵀ turns
  the results.

To turn a vector costs O(N) for each rotation. At the end of a run its rotations turn each tile of the memory, one
after another, as if every step had done so: before steps that are multiples of `every`, before a reset, and at the end
of a sequence. With 16 steps that are 4.5 N² bytes of the memory for a step forward, and 8.5 N² backward.

After 1,024 steps with N = 64, whose rotations depended on the inputs alone, the memory differs from that in float64 by
1.6e-6 of its norm, and is the same, to the last digit, as with a write at each step; plain torch in float32 differs by
2.9e-6. The outputs differ by 1.8e-7.

Rows of a memory are `stride` numbers apart, a multiple of four, with zeros beyond N, so that threads load 16 bytes at
once. `rotations` (B, every, 4 + 5 stride) has C₁₁, C₁₂ and C₂₁, and the vectors u, w, P h, P u and P w.
"""

import triton
import triton.language as tl

from gyral.ops.rum.triton.memory import begin_memory, memory_gradients, rotate_memory_backward, turn, turn_3
from gyral.ops.rum.triton.rotation import Rotation, apply, rotation_backward
from gyral.ops.rum.triton.step import (
    StepArguments,
    begin_step,
    load_parts,
    load_rows,
    load_starts,
    part_backward,
    restore_step,
)
from gyral.ops.rum.triton.steps import load_length, load_previous, load_sums
from gyral.ops.triton.rows import add_5

PLANE, H, TURNED = tl.constexpr(0), tl.constexpr(2), tl.constexpr(3)  # places of vectors among those of a rotation


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


@triton.jit
def _slot(rotations, row, t, every: tl.constexpr, stride: tl.constexpr):
    """Return the pointer to the rotation of step t."""
    return rotations + (row * every + t % every) * (4 + 5 * stride)


@triton.jit
def _load_vector(slot, which: tl.constexpr, columns, active, stride: tl.constexpr):
    """Return a vector (N,) of a rotation."""
    return tl.load(slot + 4 + which * stride + columns, mask=active & (columns < stride), other=0.0)


@triton.jit
def _store_vector(slot, which: tl.constexpr, vector, columns, active, stride: tl.constexpr):
    tl.store(slot + 4 + which * stride + columns, vector, mask=active & (columns < stride))


@triton.jit
def _load_rotation(slot, columns, stride: tl.constexpr):
    """Return u, w, C₁₁, C₁₂ and C₂₁ of a rotation."""
    u, w = _load_vector(slot, PLANE, columns, True, stride), _load_vector(slot, PLANE + 1, columns, True, stride)
    return u, w, tl.load(slot), tl.load(slot + 1), tl.load(slot + 2)


@triton.jit
def _store_rotation(slot, rotation, columns, active, stride: tl.constexpr):
    tl.store(slot, rotation.c11, mask=active)
    tl.store(slot + 1, rotation.c12, mask=active)
    tl.store(slot + 2, rotation.c21, mask=active)
    _store_vector(slot, PLANE, rotation.u, columns, active, stride)
    _store_vector(slot, PLANE + 1, rotation.w, columns, active, stride)


@triton.jit
def _first_of_run(starts, t, row, batch, every: tl.constexpr, config: tl.constexpr):
    """Return the first step of the run that has step t."""
    begin = t - t % every
    first = begin
    if config.has_starts:
        for s in range(begin + 1, t + 1):
            started = load_starts(starts, row + tl.cast(s, tl.int64) * batch, row >= 0, config)
            first = tl.where(started, s, first)
    return first


@triton.jit
def _last_of_run(starts, t, length, row, batch, every: tl.constexpr, config: tl.constexpr):
    """Return the last step of the run that has step t."""
    end = tl.minimum(t - t % every + every, length)
    last = end - 1
    if config.has_starts:
        for i in range(end - 1 - t):
            s = end - 1 - i
            started = load_starts(starts, row + tl.cast(s, tl.int64) * batch, row >= 0, config)
            last = tl.where(started, s - 1, last)
    return last


@triton.jit
def _with_plane(rotation, u, w):
    """Return a rotation in another plane."""
    return Rotation(
        u, rotation.v, w, rotation.c11, rotation.c12, rotation.c21, rotation.h_u, rotation.h_w, rotation.along_u,
        rotation.along_w, rotation.overlap, rotation.sine, rotation.is_obtuse, rotation.is_opposite,
        rotation.inverse_embedded, rotation.inverse_target, rotation.cosine,
    )  # fmt: skip


@triton.jit(do_not_specialize=["t", "steps", "batch", "share"])
def forward_memory(
    parts, products, hidden, norms, lengths, starts, outputs, scales, memory, memory_reads, slots, replaced, rotations,
    t, steps, batch, epsilon, share,
    config: tl.constexpr, every: tl.constexpr, stride: tl.constexpr, block_size: tl.constexpr,
    block_tile: tl.constexpr,
):  # fmt: skip
    """Store R_t h_{t−1} in `memory_reads`, and at the end of a run R_t in `memory` (B, N, stride).

    A program has `share` rows of a memory. `replaced` stores R before a reset, at the index in `slots` (T, B).
    """
    size: tl.constexpr = config.size
    area: tl.constexpr = size * stride
    programs = tl.cdiv(size, share)
    row = (tl.program_id(0) // programs).to(tl.int64)
    begin = (tl.program_id(0) % programs) * share
    end = tl.minimum(begin + share, size)
    index = row + tl.cast(t, tl.int64) * batch
    columns = tl.arange(0, block_size)
    # vectors that are loaded with a tile of addresses are in the threads of its columns, without an exchange
    wide = tl.broadcast_to(columns[None, :], (block_tile, block_size))
    length = load_length(lengths, row, steps, config)
    active = t < length
    if active:
        memory += row * area
        next_tile = _load_memory(memory, begin, end, columns, stride, block_tile)
        started = load_starts(starts, index, active, config)
        writes = ((t + 1) % every == 0) | (t + 1 == length)
        slot = replaced
        if config.has_starts:
            writes = writes | load_starts(starts, index + batch, t + 1 < length, config)
            slot += tl.load(slots + index, mask=started, other=0) * area
        # no step is active, so that nothing is stored: `forward_step` computes and stores the same
        step = StepArguments(
            parts, scales, norms, norms, norms, 0.0, 0.0, epsilon, index, columns, tl.program_id(0) < 0
        )
        target, gate, embedded = load_sums(parts, products, index, row, columns, active, started, config)
        h = load_previous(outputs, hidden, t, row, batch, columns, started == 0, size)
        gate, rotation = begin_step(target, gate, embedded, h, scales, step, config)
        _store_rotation(_slot(rotations, row, t, every, stride), rotation, columns, begin == 0, stride)
        first = _first_of_run(starts, t, row, batch, every, config)
        turned = apply(rotation, h)
        u, w, c11, c12, c21 = _load_rotation(_slot(rotations, row, t + every - 1, every, stride), columns, stride)
        for i in range(t - first):  # each rotation is loaded while the one before it turns the vector
            ahead = _slot(rotations, row, t + every - 2 - i, every, stride)
            next_u, next_w, next_11, next_12, next_21 = _load_rotation(ahead, columns, stride)
            turned = turn(turned, u, w, c11, c12, c21)
            u, w, c11, c12, c21 = next_u, next_w, next_11, next_12, next_21
        for start in range(begin, end, block_tile):
            tile = next_tile
            next_tile = _load_memory(memory, start + block_tile, end, columns, stride, block_tile)
            at, inside, out = _places(start, end, columns, stride, block_tile)
            tile = begin_memory(tile, at, inside, out, columns, started, slot, False, slot, config)
            read = tl.sum(tile * turned[None, :], axis=1, keep_dims=True)
            tl.store(memory_reads + index * size + out, read, mask=out < end)
            if config.has_starts:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
                if started:
                    tl.store(memory + at, tile, mask=inside)
        if writes:
            tl.debug_barrier()  # the identity may be in the memory now
            next_tile = _load_memory(memory, begin, end, columns, stride, block_tile)
            for start in range(begin, end, block_tile):
                tile = next_tile
                next_tile = _load_memory(memory, start + block_tile, end, columns, stride, block_tile)
                for s in range(first, t):
                    u_s, w_s, d11, d12, d21 = _load_rotation(_slot(rotations, row, s, every, stride), wide, stride)
                    tile = turn(tile, u_s, w_s, d11, d21, d12)  # its rows: transposed
                tile = turn(tile, rotation.u[None, :], rotation.w[None, :], rotation.c11, rotation.c21, rotation.c12)
                at, inside, _ = _places(start, end, columns, stride, block_tile)
                tl.store(memory + at, tile, mask=inside)


@triton.jit(do_not_specialize=["t", "steps", "batch", "share", "checkpoint_every"])
def backward_memory(
    parts, hidden, norms, lengths, starts, outputs, memory, memory_reads, slots, replaced, checkpoints, rotations,
    grad_memory, sums, t, steps, batch, checkpoint_every, share,
    config: tl.constexpr, every: tl.constexpr, stride: tl.constexpr, block_size: tl.constexpr,
    block_tile: tl.constexpr, groups: tl.constexpr,
):  # fmt: skip
    """Store the terms of the sums of `memory_gradients` in `sums`, given ∂L/∂y_t in `memory_reads`.

    They are those of vectors that P has turned. At the beginning of a run, change R in `memory` to R_{t−1}, and its
    gradient in `grad_memory` likewise. `sums` is (B, programs of a row, 5, stride).
    """
    size: tl.constexpr = config.size
    area: tl.constexpr = size * stride
    programs = tl.cdiv(size, share)
    row = (tl.program_id(0) // programs).to(tl.int64)
    begin = (tl.program_id(0) % programs) * share
    end = tl.minimum(begin + share, size)
    index = row + tl.cast(t, tl.int64) * batch
    columns = tl.arange(0, block_size)
    # vectors that are loaded with a tile of addresses are in the threads of its columns, without an exchange
    wide = tl.broadcast_to(columns[None, :], (block_tile, block_size))
    length = load_length(lengths, row, steps, config)
    active = t < length
    if active:
        memory += row * area
        grad_memory += row * area
        # R after a run is the checkpoint saved before the next step, if there is one
        last = _last_of_run(starts, t, length, row, batch, every, config)
        after = last + 1
        source = memory
        if (after % checkpoint_every == 0) & (after < length):
            source = checkpoints + (tl.cast(after // checkpoint_every - 1, tl.int64) * batch + row) * area
        # or the memory that the identity has replaced before the next step
        if config.has_starts:
            after_index = row + tl.cast(after, tl.int64) * batch
            if load_starts(starts, after_index, after < length, config):
                source = replaced + tl.load(slots + after_index) * area
        next_tile = _load_memory(source, begin, end, columns, stride, block_tile)
        next_d = _load_memory(grad_memory, begin, end, columns, stride, block_tile)
        started = load_starts(starts, index, active, config)
        writes = (t % every == 0) | started
        # only norms and columns are read
        step = StepArguments(parts, parts, norms, norms, norms, 0.0, 0.0, 0.0, index, columns, active)
        target, gate, embedded = load_parts(parts, index, columns, active, config)
        h = load_previous(outputs, hidden, t, row, batch, columns, started == 0, size)
        gate, rotation = restore_step(target, gate, embedded, h, step, config)
        turned_u, turned_w, turned_h = rotation.u, rotation.w, h
        u, w, c11, c12, c21 = _load_rotation(_slot(rotations, row, t + 1, every, stride), columns, stride)
        for s in range(t + 1, last + 1):
            ahead = _slot(rotations, row, s + 1, every, stride)
            next_u, next_w, next_11, next_12, next_21 = _load_rotation(ahead, columns, stride)
            turned_u, turned_w, turned_h = turn_3(turned_u, turned_w, turned_h, u, w, c11, c21, c12)  # transposed
            u, w, c11, c12, c21 = next_u, next_w, next_11, next_12, next_21
        own = _slot(rotations, row, t, every, stride)
        _store_rotation(own, rotation, columns, begin == 0, stride)
        _store_vector(own, H, turned_h, columns, begin == 0, stride)
        _store_vector(own, TURNED, turned_u, columns, begin == 0, stride)
        _store_vector(own, TURNED + 1, turned_w, columns, begin == 0, stride)
        turned = _with_plane(rotation, turned_u, turned_w)
        nothing = tl.zeros([groups, block_size], tl.float32)
        terms = (nothing, nothing, nothing, nothing, nothing)
        for start in range(begin, end, block_tile):
            tile, d_tile = next_tile, next_d
            next_tile = _load_memory(source, start + block_tile, end, columns, stride, block_tile)
            next_d = _load_memory(grad_memory, start + block_tile, end, columns, stride, block_tile)
            at, inside, out = _places(start, end, columns, stride, block_tile)
            for s in range(t + 1, last + 1):
                dy_s = tl.load(memory_reads + (row + tl.cast(s, tl.int64) * batch) * size + out, out < end, 0.0)
                d_tile += dy_s * _load_vector(_slot(rotations, row, s, every, stride), H, wide, True, stride)
            dy = tl.load(memory_reads + index * size + out, mask=out < end, other=0.0)
            tile, d_tile, terms = rotate_memory_backward(tile, d_tile, dy, turned_h, turned, terms, groups)
            if writes:
                for i in range(last - t):
                    of_s = _slot(rotations, row, last - i, every, stride)
                    u_s, w_s, d11, d12, d21 = _load_rotation(of_s, wide, stride)
                    tile = turn(tile, u_s, w_s, d11, d12, d21)
                    d_tile = turn(d_tile, u_s, w_s, d11, d12, d21)
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
    parts, hidden, norms, lengths, starts, outputs, scales, memory_reads, rotations, grad_hidden, grad_norms, rounded,
    sums, t, steps, batch, share,
    config: tl.constexpr, every: tl.constexpr, rounds: tl.constexpr, stride: tl.constexpr, block_size: tl.constexpr,
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
    length = load_length(lengths, row, steps, config)
    active = t < length
    grad_norms += row * (6 * size)
    step = StepArguments(parts, scales, norms, norms, grad_norms, 0.0, 0.0, 0.0, index, columns, active)
    started = load_starts(starts, index, active, config)
    saved_target, gate, embedded = load_parts(parts, index, columns, active, config)
    h = load_previous(outputs, hidden, t, row, batch, columns, active & (started == 0), size)
    gate, rotation = restore_step(saved_target, gate, embedded, h, step, config)
    own = _slot(rotations, row, t, every, stride)
    turned_u = _load_vector(own, TURNED, columns, active, stride)
    turned_w = _load_vector(own, TURNED + 1, columns, active, stride)
    terms = _add_sums(sums, row, tl.cdiv(size, share), columns, active, stride, block_sums)
    du, dw, to_h, of_vectors, of_c = memory_gradients(terms, _with_plane(rotation, turned_u, turned_w))
    last = _last_of_run(starts, t, length, row, batch, every, config)
    u, w, c11, c12, c21 = _load_rotation(_slot(rotations, row, last, every, stride), columns, stride)
    for i in range(last - t):
        ahead = _slot(rotations, row, last - 1 - i, every, stride)
        next_u, next_w, next_11, next_12, next_21 = _load_rotation(ahead, columns, stride)
        du, dw, to_h = turn_3(du, dw, to_h, u, w, c11, c12, c21)
        u, w, c11, c12, c21 = next_u, next_w, next_11, next_12, next_21
    dembedded, dtarget = rotation_backward(
        du, dw, of_vectors[0], of_vectors[1], of_vectors[2], of_vectors[3], of_c[0], of_c[1], of_c[2], of_c[3], rotation
    )
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
