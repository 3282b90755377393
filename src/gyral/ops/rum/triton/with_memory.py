"""The kernels for λ = 1. A program runs one sequence and its associative memory through all steps.

The backward pass reverses the updates of the memory, R_{t−1} = R_t Rotation(τ_t, ε̃_t), and loads the exact memory
every `CHECKPOINT_EVERY` steps, so that rounding errors do not accumulate over long sequences.
"""

import triton
import triton.language as tl

from gyral.ops.rum.triton.rotation import rotation_backward, rotation_between
from gyral.ops.rum.triton.rowwise import dot
from gyral.ops.rum.triton.step import (
    StepArguments,
    finish_parts,
    load_parts,
    load_starts,
    new_hidden,
    new_hidden_backward,
    target_backward,
)


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_with_memory(
    parts,
    weight,
    hidden,
    memory,
    norms,
    keep,
    lengths,
    starts,
    outputs,
    final,
    cosines,
    scales,
    memory_reads,
    slots,
    replaced,
    checkpoints,
    steps,
    batch,
    keep_probability,
    eta,
    epsilon,
    config: tl.constexpr,
    checkpoint_every: tl.constexpr,
    block_size: tl.constexpr,
    block_tile: tl.constexpr,
):
    """Run all steps: R_t overwrites R_0 in `memory`, and `memory_reads` (T, B, N) stores R_t h_{t−1}.

    `replaced` stores R before each reset, at the index in `slots` (T, B).
    """
    size: tl.constexpr = config.size
    width: tl.constexpr = config.width
    recurrent: tl.constexpr = config.recurrent
    sample = tl.program_id(0).to(tl.int64)
    row = sample + tl.arange(0, 1)
    columns = tl.arange(0, block_size)
    inside = (columns < size)[None, :]
    here = row[:, None] * size + columns[None, :]
    memory += sample * (size * size)
    checkpoints += sample * (size * size)
    h = tl.load(hidden + here, mask=inside, other=0.0)

    for t in range(tl.load(lengths + sample).to(tl.int32)):
        step_offset = tl.cast(t, tl.int64) * batch
        parts_t, scales_t, keep_t = parts + step_offset * width, scales + step_offset * 2, keep + step_offset * size
        memory_reads_t = memory_reads + step_offset * size
        step = StepArguments(
            parts_t, scales_t, keep_t, norms, norms, keep_probability, eta, epsilon, row, columns, row < batch
        )
        if config.has_starts:  # noqa: SIM102 (without starts nothing may be loaded)
            if tl.load(starts + step_offset + sample) != 0:
                h = tl.zeros([1, block_size], tl.float32)
                slot = replaced + tl.load(slots + step_offset + sample) * (size * size)
                for start in range(0, size, block_tile):
                    out = start + tl.arange(0, block_tile)
                    tile_at = out[:, None] * size + columns[None, :]
                    valid = (out < size)[:, None] & inside
                    tl.store(slot + tile_at, tl.load(memory + tile_at, mask=valid, other=0.0), mask=valid)
                    identity = tl.where(out[:, None] == columns[None, :], 1.0, 0.0)
                    tl.store(memory + tile_at, identity, mask=valid)
                tl.debug_barrier()
        for start in range(0, recurrent, block_tile):
            out = start + tl.arange(0, block_tile)
            tile_at = weight + out[:, None] * size + columns[None, :]
            tile = tl.load(tile_at, mask=(out < recurrent)[:, None] & inside, other=0.0).to(tl.float32)
            sums_at = parts_t + sample * width + out
            sums = tl.load(sums_at, mask=out < recurrent, other=0.0) + tl.sum(tile * h, axis=1)
            tl.store(sums_at, sums, mask=out < recurrent)
        tl.debug_barrier()

        at = parts_t + row[:, None] * width + columns[None, :]
        target = tl.load(at, mask=inside, other=0.0)
        gate = target
        if config.gated:
            gate = tl.load(at + size, mask=inside, other=0.0)
        target, gate, embedded = finish_parts(target, gate, step, config)
        rotation = rotation_between(target, embedded, columns, size)
        u, w = rotation.u, rotation.w
        tl.store(cosines + step_offset + row[:, None], rotation.cosine)
        alpha, beta = dot(u, h), dot(w, h)
        rotated = (
            h + (rotation.c11 * alpha + rotation.c12 * beta) * u + (rotation.c21 * alpha + rotation.c22 * beta) * w
        )

        # R_t h = R_{t−1} (Rotation h), in the same pass over the rows of R that computes R_t from R_{t−1}
        saving = (t > 0) & (t % checkpoint_every == 0)
        checkpoint = checkpoints + (tl.cast(t // checkpoint_every, tl.int64) - 1) * batch * (size * size)
        for start in range(0, size, block_tile):
            out = start + tl.arange(0, block_tile)
            tile_at = out[:, None] * size + columns[None, :]
            valid = (out < size)[:, None] & inside
            tile = tl.load(memory + tile_at, mask=valid, other=0.0)
            tl.store(checkpoint + tile_at, tile, mask=valid & saving)
            tl.store(memory_reads_t + sample * size + out, tl.sum(tile * rotated, axis=1), mask=out < size)
            tile_u, tile_w = dot(tile, u), dot(tile, w)
            tile += (rotation.c11 * tile_u + rotation.c21 * tile_w) * u + (
                rotation.c12 * tile_u + rotation.c22 * tile_w
            ) * w
            tl.store(memory + tile_at, tile, mask=valid)
        tl.debug_barrier()

        candidate = embedded + tl.load(memory_reads_t + here, mask=inside, other=0.0)
        h = new_hidden(candidate, gate, h, step, config)
        tl.store(outputs + step_offset * size + here, h, mask=inside)
    tl.store(final + here, h, mask=inside)


@triton.jit(do_not_specialize=["steps", "batch"])
def backward_with_memory(
    parts,
    weight,
    hidden,
    memory,
    norms,
    keep,
    lengths,
    starts,
    outputs,
    scales,
    memory_reads,
    slots,
    replaced,
    checkpoints,
    grad_outputs,
    grad_hidden,
    grad_memory,
    grad_norms,
    steps,
    batch,
    keep_probability,
    eta,
    epsilon,
    config: tl.constexpr,
    checkpoint_every: tl.constexpr,
    block_size: tl.constexpr,
    block_tile: tl.constexpr,
):
    """Run all steps in reverse, from R_T in `memory` back to R_0.

    `grad_memory` and `grad_hidden` hold the gradients of the final state, and on return those of the initial state."""
    size: tl.constexpr = config.size
    width: tl.constexpr = config.width
    recurrent: tl.constexpr = config.recurrent
    sample = tl.program_id(0).to(tl.int64)
    row = sample + tl.arange(0, 1)
    columns = tl.arange(0, block_size)
    inside = (columns < size)[None, :]
    here = row[:, None] * size + columns[None, :]
    grad_norms += sample * (6 * size)
    memory += sample * (size * size)
    grad_memory += sample * (size * size)
    checkpoints += sample * (size * size)
    dh = tl.load(grad_hidden + here, mask=inside, other=0.0)

    length = tl.load(lengths + sample).to(tl.int32)
    for t in range(length, steps):
        at = parts + (tl.cast(t, tl.int64) * batch + row[:, None]) * width + columns[None, :]
        tl.store(at, tl.zeros([1, block_size], tl.float32), mask=inside)
        tl.store(at + recurrent, tl.zeros([1, block_size], tl.float32), mask=inside)
        if config.gated:
            tl.store(at + size, tl.zeros([1, block_size], tl.float32), mask=inside)

    for reverse_t in range(length):
        t = length - 1 - reverse_t
        step_offset = tl.cast(t, tl.int64) * batch
        parts_t, scales_t, keep_t = parts + step_offset * width, scales + step_offset * 2, keep + step_offset * size
        memory_reads_t = memory_reads + step_offset * size
        step = StepArguments(
            parts_t, scales_t, keep_t, norms, grad_norms, keep_probability, eta, epsilon, row, columns, row < batch
        )
        started = load_starts(starts + step_offset, row, row < batch, config)
        previous = hidden
        if t > 0:
            previous = outputs + (step_offset - batch) * size
        h = tl.load(previous + here, mask=inside & (started == 0)[:, None], other=0.0)
        saved_target, saved_gate, target, gate, embedded = load_parts(step, config)
        d = dh + tl.load(grad_outputs + step_offset * size + here, mask=inside, other=0.0)
        candidate = embedded + tl.load(memory_reads_t + here, mask=inside, other=0.0)
        dy, dgate, dh = new_hidden_backward(d, candidate, gate, saved_gate, h, step, config)
        # the tiles read dy along their rows; no thread uses the values of a step that are overwritten from here on
        tl.debug_barrier()
        tl.store(memory_reads_t + here, dy, mask=inside)
        tl.debug_barrier()

        rotation = rotation_between(target, embedded, columns, size)
        u, w, c11, c12, c21, c22 = rotation.u, rotation.w, rotation.c11, rotation.c12, rotation.c21, rotation.c22
        # R_t is the checkpoint saved before step t + 1, if there is one
        source = memory
        if (t + 1) % checkpoint_every == 0 and t + 1 < length:
            source = checkpoints + (tl.cast((t + 1) // checkpoint_every, tl.int64) - 1) * batch * (size * size)
        # or the memory that the identity has replaced before step t + 1; then the checkpoint is the identity
        if config.has_starts:  # noqa: SIM102
            if t + 1 < length:  # noqa: SIM102
                if tl.load(starts + step_offset + batch + sample) != 0:
                    source = replaced + tl.load(slots + step_offset + batch + sample) * (size * size)
        du = tl.zeros([1, block_size], tl.float32)
        dw = tl.zeros([1, block_size], tl.float32)
        dc11 = tl.zeros([1, 1], tl.float32)
        dc12 = tl.zeros([1, 1], tl.float32)
        dc21 = tl.zeros([1, 1], tl.float32)
        dc22 = tl.zeros([1, 1], tl.float32)
        for start in range(0, size, block_tile):
            out = start + tl.arange(0, block_tile)
            tile_at = out[:, None] * size + columns[None, :]
            valid = (out < size)[:, None] & inside
            dy_out = tl.load(memory_reads_t + sample * size + out, mask=out < size, other=0.0)[:, None]
            # R_t, and ∂L/∂R_t with the term of y_t = R_t h_{t−1}
            tile = tl.load(source + tile_at, mask=valid, other=0.0)
            d_tile = tl.load(grad_memory + tile_at, mask=valid, other=0.0) + dy_out * h
            dh += tl.sum(tile * dy_out, axis=0, keep_dims=True)
            # R_{t−1} = R_t Rotationᵀ
            tile_u, tile_w = dot(tile, u), dot(tile, w)
            tile += (c11 * tile_u + c12 * tile_w) * u + (c21 * tile_u + c22 * tile_w) * w
            tl.store(memory + tile_at, tile, mask=valid)
            # with M = R_{t−1}ᵀ ∂L/∂R_t and E = [u w], ∂E = M E Cᵀ + Mᵀ E C and ∂C = Eᵀ M E
            tile_u, tile_w = dot(tile, u), dot(tile, w)
            d_u, d_w = dot(d_tile, u), dot(d_tile, w)
            to_u, to_w = c11 * d_u + c12 * d_w, c21 * d_u + c22 * d_w
            du += tl.sum(tile * to_u + d_tile * (c11 * tile_u + c21 * tile_w), axis=0, keep_dims=True)
            dw += tl.sum(tile * to_w + d_tile * (c12 * tile_u + c22 * tile_w), axis=0, keep_dims=True)
            dc11 += tl.sum(tile_u * d_u, axis=0, keep_dims=True)
            dc12 += tl.sum(tile_u * d_w, axis=0, keep_dims=True)
            dc21 += tl.sum(tile_w * d_u, axis=0, keep_dims=True)
            dc22 += tl.sum(tile_w * d_w, axis=0, keep_dims=True)
            # ∂L/∂R_{t−1} = ∂L/∂R_t Rotationᵀ
            d_tile = tl.where(started[:, None], 0.0, d_tile + to_u * u + to_w * w)
            tl.store(grad_memory + tile_at, d_tile, mask=valid)

        dembedded, dtarget = rotation_backward(du, dw, dc11, dc12, dc21, dc22, rotation)
        dtarget = target_backward(dtarget, saved_target, step, config)
        at = parts_t + row[:, None] * width + columns[None, :]
        tl.store(at, dtarget, mask=inside)
        if config.gated:
            tl.store(at + size, dgate, mask=inside)
        tl.store(at + recurrent, dembedded + dy, mask=inside)
        tl.debug_barrier()

        for start in range(0, recurrent, block_tile):
            out = start + tl.arange(0, block_tile)
            tile_at = weight + out[:, None] * size + columns[None, :]
            tile = tl.load(tile_at, mask=(out < recurrent)[:, None] & inside, other=0.0).to(tl.float32)
            d_out = tl.load(parts_t + sample * width + out, mask=out < recurrent, other=0.0)[:, None]
            dh += tl.sum(tile * d_out, axis=0, keep_dims=True)
        dh = tl.where(started[:, None], 0.0, dh)
    tl.store(grad_hidden + here, dh, mask=inside)
