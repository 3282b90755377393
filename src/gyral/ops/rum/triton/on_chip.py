"""The kernels for small hidden sizes. A program runs one sequence through all steps.

What it reads again in each step stays in registers: the recurrent weights, the associative memory for λ = 1, and its
gradient. Only weights for λ = 1 that do not fit, too, are loaded in each step. The rows of the next step are loaded
before this one is computed.

The backward pass reverses the updates of the memory, R_{t−1} = R_t Rotation(τ_t, ε̃_t), and loads the exact memory
every `checkpoint_every` steps, so that rounding errors do not accumulate over long sequences.
"""

import triton
import triton.language as tl

from gyral.ops.rum.triton.rotation import apply_backward, rotation_backward, rotation_between
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
from gyral.ops.triton.rows import add_2, add_3, totals_4


@triton.jit
def _square(tensor, index, columns, size: tl.constexpr):
    """Return pointers to the matrix (N, N) at an index of a tensor, and their mask."""
    at = tensor + index * (size * size) + (columns[:, None] * size + columns[None, :])
    return at, (columns < size)[:, None] & (columns < size)[None, :]


@triton.jit
def _load_weight(weight, which: tl.constexpr, columns, size: tl.constexpr):
    """Return the recurrent weights (N, N) of target (0) or gate (1)."""
    at, inside = _square(weight, which, columns, size)
    return tl.load(at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _zeros_like_columns(tile):
    """Return zeros (N,) whose elements are in the threads of the columns of a tile (N, N).

    The compiler gives a sum with it this layout, in which each warp has whole rows: their sums need no barrier.
    """
    return tl.where(tl.sum(tile, axis=0) < float("-inf"), 1.0, 0.0)


@triton.jit
def _load_step(
    parts, outputs, hidden, grad_outputs, memory_reads, t, row, batch, columns, active, given,
    has_memory: tl.constexpr, config: tl.constexpr,
):  # fmt: skip
    """Return the rows of step t: those of `load_parts`, h_{t−1}, the gradient of h_t's output, and R_t h_{t−1}."""
    index = row + tl.cast(t, tl.int64) * batch
    target, gate, embedded = load_parts(parts, index, columns, active, config)
    h = load_rows(outputs, index - batch, columns, active & (t > 0), config.size)
    h += load_rows(hidden, row, columns, active & (t == 0), config.size)
    d = load_rows(grad_outputs, index, columns, active & given, config.size)
    read = h
    if has_memory:
        read = load_rows(memory_reads, index, columns, active, config.size)
    return target, gate, embedded, h, d, read


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_on_chip(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, final, final_memory, cosines, scales, memory_reads, slots, replaced, checkpoints,
    steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, has_memory: tl.constexpr, checkpoint_every: tl.constexpr, resident: tl.constexpr,
    block_size: tl.constexpr,
):  # fmt: skip
    """Run all steps, with `weight` (G − 1, N, N), rows of input units.

    For λ = 1 `memory_reads` (T, B, N) stores R_t h_{t−1}, and `replaced` R before each reset, at the index in `slots`
    (T, B).
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
    if resident:
        target_weight = _load_weight(weight, 0, columns, size)
        gate_weight = _load_weight(weight, config.gated, columns, size)
    if has_memory:
        tile_at, tile_valid = _square(memory, row, columns, size)
        tile = tl.load(tile_at, mask=tile_valid, other=0.0)
    zeros = _zeros_like_columns(_load_weight(weight, 0, columns, size))
    next_target, next_gate, next_embedded = load_parts(parts, row, columns, exists, config)

    for t in range(length):
        index = row + tl.cast(t, tl.int64) * batch
        step = StepArguments(parts, scales, keep, norms, norms, keep_probability, eta, epsilon, index, columns, exists)
        target, gate, embedded = next_target + zeros, next_gate + zeros, next_embedded + zeros
        ahead = exists & (t + 1 < length)
        next_target, next_gate, next_embedded = load_parts(parts, index + batch, columns, ahead, config)
        if config.has_starts:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
            if load_starts(starts, index, exists, config):
                h = tl.zeros_like(h)
                if has_memory:
                    at, whole = _square(replaced, tl.load(slots + index), columns, size)
                    tl.store(at, tile, mask=whole)
                    tile = tl.where((columns[:, None] == columns[None, :]) & tile_valid, 1.0, 0.0)
        if has_memory:  # noqa: SIM102
            if (t > 0) & (t % checkpoint_every == 0):
                slot = (t // checkpoint_every - 1) * tl.cast(batch, tl.int64) + row
                at, whole = _square(checkpoints, slot, columns, size)
                tl.store(at, tile, mask=whole)
        if resident and config.gated:
            to_target, to_gate = tl.reduce((h[:, None] * target_weight, h[:, None] * gate_weight), 0, add_2)
        else:
            to_target = tl.sum(h[:, None] * _load_weight(weight, 0, columns, size), axis=0)
            to_gate = to_target
            if config.gated:
                to_gate = tl.sum(h[:, None] * _load_weight(weight, 1, columns, size), axis=0)
        target, gate = target + to_target, gate + to_gate
        tl.debug_barrier()  # several threads may hold an element: all have loaded the sums before one overwrites them
        target, gate = finish_parts(target, gate, step, config)
        rotation = rotation_between(target, embedded, h, columns, size)
        u, w, c11, c12, c21 = rotation.u, rotation.w, rotation.c11, rotation.c12, rotation.c21
        tl.store(cosines + index, rotation.cosine)
        if has_memory:
            # R_t h = R_{t−1} (Rotation h), from the same sums as R_t from R_{t−1}
            tile_h = tl.sum(tile * h[None, :], axis=1)
            tile_u, tile_w = tl.sum(tile * u[None, :], axis=1), tl.sum(tile * w[None, :], axis=1)
            rotated = tile_h + rotation.along_u * tile_u + rotation.along_w * tile_w
            tile += (c11 * tile_u + c21 * tile_w)[:, None] * u[None, :]
            tile += (c12 * tile_u + c11 * tile_w)[:, None] * w[None, :]
            tl.store(memory_reads + index * size + columns, rotated, mask=valid)
        else:
            rotated = h + rotation.along_u * u + rotation.along_w * w
        h = new_hidden(embedded + rotated, gate, h, step, config)
        tl.store(outputs + index * size + columns, h, mask=valid)

    tl.store(final + row * size + columns, h, mask=valid)
    if has_memory:
        tile_at, _ = _square(final_memory, row, columns, size)
        tl.store(tile_at, tile, mask=tile_valid)
    for t in range(length, steps):
        at = outputs + (row + tl.cast(t, tl.int64) * batch) * size + columns
        tl.store(at, tl.zeros([block_size], tl.float32), mask=valid)


@triton.jit(do_not_specialize=["given_outputs", "given_final", "given_memory", "steps", "batch"])
def backward_on_chip(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, scales, memory_reads, slots, replaced, checkpoints,
    grad_outputs, grad_final, grad_final_memory, grad_hidden, grad_memory, grad_norms,
    given_outputs, given_final, given_memory, steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, has_memory: tl.constexpr, checkpoint_every: tl.constexpr, resident: tl.constexpr,
    block_size: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse, with `weight` (G − 1, N, N), rows of output units, and R_T in `memory`.

    `grad_norms` (programs, 3, 2, N) holds zeros. A gradient of results that is not `given` is zero.
    """
    size: tl.constexpr = config.size
    grad_norms += tl.program_id(0) * (6 * size)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block_size)
    exists = row < batch
    valid = exists & (columns < size)
    length = steps
    if config.has_lengths:
        length = tl.load(lengths + row).to(tl.int32)
    if resident:
        target_weight = _load_weight(weight, 0, columns, size)
        gate_weight = _load_weight(weight, config.gated, columns, size)
    if has_memory:
        tile_at, tile_valid = _square(memory, row, columns, size)
        tile = tl.load(tile_at, mask=tile_valid, other=0.0)
        tile_at, _ = _square(grad_final_memory, row, columns, size)
        d_tile = tl.load(tile_at, mask=tile_valid & (given_memory != 0), other=0.0)
    dh = load_rows(grad_final, row, columns, exists & (given_final != 0), size)
    zero = tl.zeros([block_size], tl.float32)
    for t in range(length, steps):
        index = row + tl.cast(t, tl.int64) * batch
        step = StepArguments(
            parts, scales, keep, norms, grad_norms, keep_probability, eta, epsilon, index, columns, exists
        )
        store_parts(zero, zero, zero, valid, step, config)
    zeros = _zeros_like_columns(_load_weight(weight, 0, columns, size))
    next_target, next_gate, next_embedded, next_h, next_d, next_read = _load_step(
        parts, outputs, hidden, grad_outputs, memory_reads, length - 1, row, batch, columns, exists, given_outputs != 0,
        has_memory, config,
    )  # fmt: skip

    for reverse_t in range(length):
        t = length - 1 - reverse_t
        index = row + tl.cast(t, tl.int64) * batch
        step = StepArguments(
            parts, scales, keep, norms, grad_norms, keep_probability, eta, epsilon, index, columns, exists
        )
        saved_target, saved_gate, embedded = next_target + zeros, next_gate + zeros, next_embedded + zeros
        h, d, rotated = next_h + zeros, next_d + zeros, next_read + zeros
        next_target, next_gate, next_embedded, next_h, next_d, next_read = _load_step(
            parts, outputs, hidden, grad_outputs, memory_reads, t - 1, row, batch, columns, exists & (t > 0),
            given_outputs != 0, has_memory, config,
        )  # fmt: skip
        started = load_starts(starts, index, exists, config)
        if config.has_starts:
            h = tl.where(started, 0.0, h)
        target, gate = restore_parts(saved_target, saved_gate, step, config)
        rotation = rotation_between(target, embedded, h, columns, size)
        u, w, c11, c12, c21 = rotation.u, rotation.w, rotation.c11, rotation.c12, rotation.c21
        if not has_memory:
            rotated = h + rotation.along_u * u + rotation.along_w * w
        dy, dgate, dh = new_hidden_backward(d + dh, embedded + rotated, gate, saved_gate, h, step, config)
        if has_memory:
            # R_t is the checkpoint saved before step t + 1, if there is one
            if ((t + 1) % checkpoint_every == 0) & (t + 1 < length):
                slot = ((t + 1) // checkpoint_every - 1) * tl.cast(batch, tl.int64) + row
                at, whole = _square(checkpoints, slot, columns, size)
                tile = tl.load(at, mask=whole, other=0.0)
            # or the memory that the identity has replaced before step t + 1; then the checkpoint is the identity
            if config.has_starts:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
                if load_starts(starts, index + batch, exists & (t + 1 < length), config):
                    at, whole = _square(replaced, tl.load(slots + index + batch), columns, size)
                    tile = tl.load(at, mask=whole, other=0.0)
            tile_u, tile_w = tl.sum(tile * u[None, :], axis=1), tl.sum(tile * w[None, :], axis=1)
            to_h = tile * dy[:, None]  # terms of R_tᵀ ∂L/∂y_t, y_t = R_t h_{t−1}
            # R_{t−1} = R_t Rotationᵀ, and ∂L/∂R_t with the term of y_t
            along_u, along_w = c11 * tile_u + c12 * tile_w, c21 * tile_u + c11 * tile_w
            tile += along_u[:, None] * u[None, :] + along_w[:, None] * w[None, :]
            d_tile += dy[:, None] * h[None, :]
            # with M = R_{t−1}ᵀ ∂L/∂R_t and E = [u w], ∂E = M E Cᵀ + Mᵀ E C and ∂C = Eᵀ M E
            u_w = tl.where(rotation.is_obtuse, 0.0, rotation.overlap)
            tile_u, tile_w = tile_u + along_u + u_w * along_w, tile_w + u_w * along_u + along_w
            d_u, d_w = tl.sum(d_tile * u[None, :], axis=1), tl.sum(d_tile * w[None, :], axis=1)
            to_u, to_w = c11 * d_u + c12 * d_w, c21 * d_u + c11 * d_w
            from_u, from_w = c11 * tile_u + c21 * tile_w, c12 * tile_u + c11 * tile_w
            to_h, du, dw = tl.reduce(
                (
                    to_h,
                    tile * to_u[:, None] + d_tile * from_u[:, None],
                    tile * to_w[:, None] + d_tile * from_w[:, None],
                ),
                0, add_3,
            )  # fmt: skip
            dh += to_h
            dc11, dc12, dc21, dc22 = totals_4(tile_u * d_u, tile_u * d_w, tile_w * d_u, tile_w * d_w)
            # ∂L/∂R_{t−1} = ∂L/∂R_t Rotationᵀ
            d_tile += to_u[:, None] * u[None, :] + to_w[:, None] * w[None, :]
            if config.has_starts:
                d_tile = tl.where(started, 0.0, d_tile)
            dembedded, dtarget = rotation_backward(du, dw, dc11, dc12, dc21, dc22, rotation)
        else:
            dembedded, dtarget, to_h = apply_backward(dy, h, rotation)
            dh += to_h
        dtarget = target_backward(dtarget, saved_target, step, config)
        tl.debug_barrier()  # several threads may hold an element: all have loaded it before one overwrites it
        store_parts(dtarget, dgate, dembedded + dy, valid, step, config)
        if not resident:
            target_weight = _load_weight(weight, 0, columns, size)
        to_sums = dtarget[:, None] * target_weight
        if config.gated:
            if not resident:
                gate_weight = _load_weight(weight, 1, columns, size)
            to_sums += dgate[:, None] * gate_weight
        dh += tl.sum(to_sums, axis=0)
        if config.has_starts:
            dh = tl.where(started, 0.0, dh)

    tl.store(grad_hidden + row * size + columns, dh, mask=valid)
    if has_memory:
        tile_at, _ = _square(grad_memory, row, columns, size)
        tl.store(tile_at, d_tile, mask=tile_valid)
