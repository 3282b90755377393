"""The kernels for λ = 1 whose memory does not fit in registers. A program runs one sequence through all steps.

It reads and writes the associative memory in each step, a tile of rows after the other. The backward pass reverses the
updates of the memory as that of `on_chip` does.
"""

import triton
import triton.language as tl

from gyral.ops.rum.triton.rotation import rotation_backward, rotation_between
from gyral.ops.rum.triton.step import (
    StepArguments,
    finish_parts,
    load_parts,
    load_rows,
    load_starts,
    new_hidden,
    new_hidden_backward,
    restore_parts,
    store_parts,
    target_backward,
)
from gyral.ops.triton.rows import dot


@triton.jit
def _tile(start, columns, block_tile: tl.constexpr, size: tl.constexpr):
    """Return offsets of the elements of some rows of a matrix (N, N), their mask, and the numbers of the rows."""
    out = start + tl.arange(0, block_tile)
    at = out.to(tl.int64)[:, None] * size + columns[None, :]
    return at, (out < size)[:, None] & (columns < size)[None, :], out


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_tiles(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, final, final_memory, cosines, scales, memory_reads, slots, replaced, checkpoints,
    steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, checkpoint_every: tl.constexpr, block_size: tl.constexpr, block_tile: tl.constexpr,
):  # fmt: skip
    """Run all steps. R_t overwrites `final_memory`, and `memory_reads` (T, B, N) stores R_t h_{t−1}.

    `replaced` stores R before each reset, at the index in `slots` (T, B).
    """
    size: tl.constexpr = config.size
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block_size)
    exists = row < batch
    valid = exists & (columns < size)
    length = steps
    if config.has_lengths:
        length = tl.load(lengths + row).to(tl.int32)
    h = load_rows(hidden, row, columns, exists, size)
    memory += row * (size * size)
    final_memory += row * (size * size)

    for t in range(length):
        index = row + tl.cast(t, tl.int64) * batch
        step = StepArguments(parts, scales, keep, norms, norms, keep_probability, eta, epsilon, index, columns, exists)
        started = load_starts(starts, index, exists, config)
        if config.has_starts:
            h = tl.where(started, 0.0, h)
        for start in range(0, config.recurrent, block_tile):
            out = start + tl.arange(0, block_tile)
            at = weight + out[:, None] * size + columns[None, :]
            tile = tl.load(at, mask=(out < config.recurrent)[:, None] & (columns < size)[None, :], other=0.0)
            sums_at = parts + index * config.width + out
            sums = tl.load(sums_at, mask=out < config.recurrent, other=0.0)
            sums += tl.sum(tile.to(tl.float32) * h[None, :], axis=1)
            tl.store(sums_at, sums, mask=out < config.recurrent)
        tl.debug_barrier()

        target, gate, embedded = load_parts(parts, index, columns, exists, config)
        tl.debug_barrier()  # several threads may hold an element: all have loaded it before one overwrites it
        target, gate = finish_parts(target, gate, step, config)
        rotation = rotation_between(target, embedded, h, columns, size)
        u, w, c11, c12, c21 = rotation.u, rotation.w, rotation.c11, rotation.c12, rotation.c21
        tl.store(cosines + index, rotation.cosine)
        rotated = h + rotation.along_u * u + rotation.along_w * w

        # R_t h = R_{t−1} (Rotation h), in the same pass over the rows of R that computes R_t from R_{t−1}
        saving = (t > 0) & (t % checkpoint_every == 0)
        checkpoint = checkpoints + ((tl.cast(t // checkpoint_every, tl.int64) - 1) * batch + row) * (size * size)
        source = final_memory
        if t == 0:
            source = memory
        if config.has_starts:
            slot = replaced + tl.load(slots + index, mask=started, other=0) * (size * size)
        for start in range(0, size, block_tile):
            tile_at, inside, out = _tile(start, columns, block_tile, size)
            tile = tl.load(source + tile_at, mask=inside, other=0.0)
            if config.has_starts:
                tl.store(slot + tile_at, tile, mask=inside & started)
                identity = tl.where((out[:, None] == columns[None, :]) & inside, 1.0, 0.0)
                tile = tl.where(started, identity, tile)
            tl.store(checkpoint + tile_at, tile, mask=inside & saving)
            tl.store(memory_reads + index * size + out, tl.sum(tile * rotated[None, :], axis=1), mask=out < size)
            tile_u, tile_w = dot(tile, u[None, :]), dot(tile, w[None, :])
            tile += (c11 * tile_u + c21 * tile_w) * u[None, :] + (c12 * tile_u + c11 * tile_w) * w[None, :]
            tl.store(final_memory + tile_at, tile, mask=inside)
        tl.debug_barrier()

        candidate = embedded + load_rows(memory_reads, index, columns, exists, size)
        h = new_hidden(candidate, gate, h, step, config)
        tl.store(outputs + index * size + columns, h, mask=valid)
    tl.store(final + row * size + columns, h, mask=valid)
    for t in range(length, steps):
        at = outputs + (row + tl.cast(t, tl.int64) * batch) * size + columns
        tl.store(at, tl.zeros([block_size], tl.float32), mask=valid)


@triton.jit(do_not_specialize=["given_outputs", "given_final", "given_memory", "steps", "batch"])
def backward_tiles(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, scales, memory_reads, slots, replaced, checkpoints,
    grad_outputs, grad_final, grad_final_memory, grad_hidden, grad_memory, grad_norms,
    given_outputs, given_final, given_memory, steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, checkpoint_every: tl.constexpr, block_size: tl.constexpr, block_tile: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse, from R_T in `memory` back to R_0.

    `grad_memory` holds the gradient of R_t, `grad_norms` (programs, 3, 2, N) zeros.
    """
    size: tl.constexpr = config.size
    grad_norms += tl.program_id(0) * (6 * size)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block_size)
    exists = row < batch
    valid = exists & (columns < size)
    dh = load_rows(grad_final, row, columns, exists & (given_final != 0), size)
    memory += row * (size * size)
    grad_final_memory += row * (size * size)
    grad_memory += row * (size * size)

    length = steps
    if config.has_lengths:
        length = tl.load(lengths + row).to(tl.int32)
    zero = tl.zeros([block_size], tl.float32)
    for t in range(length, steps):
        index = row + tl.cast(t, tl.int64) * batch
        step = StepArguments(
            parts, scales, keep, norms, grad_norms, keep_probability, eta, epsilon, index, columns, exists
        )
        store_parts(zero, zero, zero, valid, step, config)

    for reverse_t in range(length):
        t = length - 1 - reverse_t
        index = row + tl.cast(t, tl.int64) * batch
        step = StepArguments(
            parts, scales, keep, norms, grad_norms, keep_probability, eta, epsilon, index, columns, exists
        )
        started = load_starts(starts, index, exists, config)
        saved_target, saved_gate, embedded = load_parts(parts, index, columns, exists, config)
        h = load_rows(hidden, row, columns, exists & (t == 0), size)
        h += load_rows(outputs, index - batch, columns, exists & (t > 0), size)
        h = tl.where(started, 0.0, h)
        d = dh + load_rows(grad_outputs, index, columns, exists & (given_outputs != 0), size)
        candidate = embedded + load_rows(memory_reads, index, columns, exists, size)
        target, gate = restore_parts(saved_target, saved_gate, step, config)
        dy, dgate, dh = new_hidden_backward(d, candidate, gate, saved_gate, h, step, config)
        # the tiles read dy along their rows; no thread uses the values of a step that are overwritten from here on
        tl.debug_barrier()
        tl.store(memory_reads + index * size + columns, dy, mask=valid)
        tl.debug_barrier()

        rotation = rotation_between(target, embedded, h, columns, size)
        u, w, c11, c12, c21 = rotation.u, rotation.w, rotation.c11, rotation.c12, rotation.c21
        # R_t is the checkpoint saved before step t + 1, if there is one
        source = memory
        if ((t + 1) % checkpoint_every == 0) & (t + 1 < length):
            source = checkpoints + ((tl.cast((t + 1) // checkpoint_every, tl.int64) - 1) * batch + row) * (size * size)
        # or the memory that the identity has replaced before step t + 1; then the checkpoint is the identity
        if config.has_starts:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
            if load_starts(starts, index + batch, exists & (t + 1 < length), config):
                source = replaced + tl.load(slots + index + batch) * (size * size)
        grad_source, grad_given = grad_memory, 1
        if reverse_t == 0:
            grad_source, grad_given = grad_final_memory, given_memory
        du, dw = zero, zero
        dc11, dc12, dc21, dc22 = 0.0, 0.0, 0.0, 0.0
        for start in range(0, size, block_tile):
            tile_at, inside, out = _tile(start, columns, block_tile, size)
            dy_out = tl.load(memory_reads + index * size + out, mask=out < size, other=0.0)[:, None]
            # R_t, and ∂L/∂R_t with the term of y_t = R_t h_{t−1}
            tile = tl.load(source + tile_at, mask=inside, other=0.0)
            d_tile = tl.load(grad_source + tile_at, mask=inside & (grad_given != 0), other=0.0) + dy_out * h[None, :]
            dh += tl.sum(tile * dy_out, axis=0)
            # R_{t−1} = R_t Rotationᵀ
            tile_u, tile_w = dot(tile, u[None, :]), dot(tile, w[None, :])
            tile += (c11 * tile_u + c12 * tile_w) * u[None, :] + (c21 * tile_u + c11 * tile_w) * w[None, :]
            tl.store(memory + tile_at, tile, mask=inside)
            # with M = R_{t−1}ᵀ ∂L/∂R_t and E = [u w], ∂E = M E Cᵀ + Mᵀ E C and ∂C = Eᵀ M E
            tile_u, tile_w = dot(tile, u[None, :]), dot(tile, w[None, :])
            d_u, d_w = dot(d_tile, u[None, :]), dot(d_tile, w[None, :])
            to_u, to_w = c11 * d_u + c12 * d_w, c21 * d_u + c11 * d_w
            du += tl.sum(tile * to_u + d_tile * (c11 * tile_u + c21 * tile_w), axis=0)
            dw += tl.sum(tile * to_w + d_tile * (c12 * tile_u + c11 * tile_w), axis=0)
            dc11 += tl.sum(tile_u * d_u)
            dc12 += tl.sum(tile_u * d_w)
            dc21 += tl.sum(tile_w * d_u)
            dc22 += tl.sum(tile_w * d_w)
            # ∂L/∂R_{t−1} = ∂L/∂R_t Rotationᵀ
            d_tile = tl.where(started, 0.0, d_tile + to_u * u[None, :] + to_w * w[None, :])
            tl.store(grad_memory + tile_at, d_tile, mask=inside)

        dembedded, dtarget = rotation_backward(du, dw, dc11, dc12, dc21, dc22, rotation)
        dtarget = target_backward(dtarget, saved_target, step, config)
        store_parts(dtarget, dgate, dembedded + dy, valid, step, config)
        tl.debug_barrier()

        for start in range(0, config.recurrent, block_tile):
            out = start + tl.arange(0, block_tile)
            at = weight + out[:, None] * size + columns[None, :]
            tile = tl.load(at, mask=(out < config.recurrent)[:, None] & (columns < size)[None, :], other=0.0)
            d_out = tl.load(parts + index * config.width + out, mask=out < config.recurrent, other=0.0)[:, None]
            dh += tl.sum(tile.to(tl.float32) * d_out, axis=0)
        dh = tl.where(started, 0.0, dh)
    tl.store(grad_hidden + row * size + columns, dh, mask=valid)
