"""The kernels whose programs run one sequence through all steps: for λ = 1, and for λ = 0 with small sizes and batches.

What fits in registers stays there over the steps: the recurrent weights, the associative memory for λ = 1, and its
gradient. What does not is read in each step, and the memory is written, a tile of rows after the other. The parts of
the next step are loaded before this one is computed.

The backward pass reverses the updates of the memory, R_{t−1} = R_t Rotation(τ_t, ε̃_t), and loads the exact memory
every `checkpoint_every` steps, so that rounding errors do not accumulate over long sequences.
"""

import triton
import triton.language as tl

from gyral.ops.rum.triton.memory import (
    add_rows,
    begin_memory,
    memory_gradients,
    rotate_memory,
    rotate_memory_backward,
)
from gyral.ops.rum.triton.rotation import apply, apply_backward, rotation_backward
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
from gyral.ops.triton.rows import add_2


@triton.jit
def _tile(start, columns, size: tl.constexpr, block: tl.constexpr):
    """Return offsets of rows `start`, `start` + 1, … of a matrix (N, N), their mask, and their numbers (block, 1)."""
    row = start + tl.arange(0, block)[:, None]
    return row * size + columns[None, :], (row < size) & (columns < size)[None, :], row


@triton.jit
def _load_weights(weight, start, columns, config: tl.constexpr, block: tl.constexpr):
    """Return rows of the recurrent weights (N, N) of target and gate; without a gate, the first twice."""
    at, inside, _ = _tile(start, columns, config.size, block)
    target = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    gate = target
    if config.gated:
        gate = tl.load(weight + config.size * config.size + at, mask=inside, other=0.0).to(tl.float32)
    return target, gate


@triton.jit
def _products(
    vector, distance: tl.constexpr, weight, columns, config: tl.constexpr, block: tl.constexpr, groups: tl.constexpr
):
    """Return the products (N,) of the weights of target and gate with vectors (N,) in memory, some distance apart."""
    sums = tl.zeros([groups, columns.shape[0]], tl.float32)
    to_target, to_gate = sums, sums
    for start in range(0, config.size, block):
        at = start + tl.arange(0, block)[:, None]
        target, gate = _load_weights(weight, start, columns, config, block)
        to_target += add_rows(target * tl.load(vector + at, mask=at < config.size, other=0.0), groups)
        if config.gated:
            to_gate += add_rows(gate * tl.load(vector + distance + at, mask=at < config.size, other=0.0), groups)
    return tl.reduce((to_target, to_gate), 0, add_2)


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
def forward_one_row(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, final, final_memory, cosines, scales, memory_reads, slots, replaced, checkpoints,
    steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, has_memory: tl.constexpr, checkpoint_every: tl.constexpr, resident: tl.constexpr,
    on_chip: tl.constexpr, block_size: tl.constexpr, block_tile: tl.constexpr, block_weight: tl.constexpr,
    groups: tl.constexpr,
):  # fmt: skip
    """Run all steps, with `weight` (G − 1, N, N), rows of input units.

    For λ = 1 `memory_reads` (T, B, N) stores R_t h_{t−1}, and `replaced` R before each reset, at the index in `slots`
    (T, B). A memory that is not `on_chip` is in `final_memory`.
    """
    size: tl.constexpr = config.size
    area: tl.constexpr = size * size
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block_size)
    exists = row < batch
    valid = exists & (columns < size)
    length = steps
    if config.has_lengths:
        length = tl.load(lengths + row).to(tl.int32)
    h = load_rows(hidden, row, columns, exists, size)
    memory += row * area
    final_memory += row * area
    at, inside, out = _tile(0, columns, size, block_tile)
    target_weight, gate_weight = _load_weights(weight, 0, columns, config, block_weight)
    # Zeros (N,) whose elements are in the threads of the columns of a matrix. The compiler gives a sum with them this
    # layout, in which each warp has whole rows: their sums need no barrier.
    zeros = tl.where(tl.sum(target_weight, axis=0) < float("-inf"), 1.0, 0.0)
    if on_chip:
        tile = tl.load(memory + at, mask=inside, other=0.0)
    next_target, next_gate, next_embedded = load_parts(parts, row, columns, exists, config)

    for t in range(length):
        index = row + tl.cast(t, tl.int64) * batch
        step = StepArguments(parts, scales, keep, norms, norms, keep_probability, eta, epsilon, index, columns, exists)
        target, gate, embedded = next_target + zeros, next_gate + zeros, next_embedded + zeros
        ahead = exists & (t + 1 < length)
        next_target, next_gate, next_embedded = load_parts(parts, index + batch, columns, ahead, config)
        started = load_starts(starts, index, exists, config)
        if config.has_starts:
            h = tl.where(started, 0.0, h)
        if resident:
            to_target = tl.sum(h[:, None] * target_weight, axis=0)
            to_gate = to_target
            if config.gated:
                to_target, to_gate = tl.reduce((h[:, None] * target_weight, h[:, None] * gate_weight), 0, add_2)
        else:
            before = outputs + (index - batch) * size
            if t == 0:
                before = hidden + row * size
            tl.debug_barrier()  # all threads have stored their elements of h
            to_target, to_gate = _products(before, 0, weight, columns, config, block_weight, groups)
            to_target, to_gate = tl.where(started, 0.0, to_target), tl.where(started, 0.0, to_gate)
        target, gate = target + to_target, gate + to_gate
        tl.debug_barrier()  # several threads may hold an element: all have loaded the sums before one overwrites them
        gate, rotation = begin_step(target, gate, embedded, h, cosines, step, config)
        rotated = apply(rotation, h)
        if has_memory:
            saving = (t > 0) & (t % checkpoint_every == 0)
            checkpoint = checkpoints + ((tl.cast(t // checkpoint_every, tl.int64) - 1) * batch + row) * area
            slot = replaced
            if config.has_starts:
                slot += tl.load(slots + index, mask=started, other=0) * area
            reads = memory_reads + index * size
            if on_chip:
                tile = begin_memory(tile, at, inside, out, columns, started, slot, saving, checkpoint, config)
                tile, read = rotate_memory(tile, h, rotation)
                tl.store(reads + out, read, mask=out < size)
                rotated = tl.reshape(read, [block_size])
            else:
                source = final_memory
                if t == 0:
                    source = memory
                for start in range(0, size, block_tile):
                    at, inside, out = _tile(start, columns, size, block_tile)
                    tile = tl.load(source + at, mask=inside, other=0.0)
                    tile = begin_memory(tile, at, inside, out, columns, started, slot, saving, checkpoint, config)
                    tile, read = rotate_memory(tile, h, rotation)
                    tl.store(reads + out, read, mask=out < size)
                    tl.store(final_memory + at, tile, mask=inside)
                tl.debug_barrier()
                rotated = load_rows(memory_reads, index, columns, exists, size)
        h = new_hidden(embedded + rotated, gate, h, step, config)
        tl.store(outputs + index * size + columns, h, mask=valid)

    tl.store(final + row * size + columns, h, mask=valid)
    if on_chip:
        tl.store(final_memory + at, tile, mask=inside)
    for t in range(length, steps):
        end = outputs + (row + tl.cast(t, tl.int64) * batch) * size + columns
        tl.store(end, tl.zeros([block_size], tl.float32), mask=valid)


@triton.jit(do_not_specialize=["given_outputs", "given_final", "given_memory", "steps", "batch"])
def backward_one_row(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, scales, memory_reads, slots, replaced, checkpoints,
    grad_outputs, grad_final, grad_final_memory, grad_hidden, grad_memory, grad_norms,
    given_outputs, given_final, given_memory, steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, has_memory: tl.constexpr, checkpoint_every: tl.constexpr, resident: tl.constexpr,
    on_chip: tl.constexpr, block_size: tl.constexpr, block_tile: tl.constexpr, block_weight: tl.constexpr,
    groups: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse, with `weight` (G − 1, N, N), rows of output units, and R_T in `memory`.

    `grad_norms` (programs, 3, 2, N) holds zeros. A gradient of results that is not `given` is zero. A memory that is
    not `on_chip` is in `memory`, its gradient in `grad_memory`, and ∂L/∂y_t in `memory_reads`.
    """
    size: tl.constexpr = config.size
    area: tl.constexpr = size * size
    grad_norms += tl.program_id(0) * (6 * size)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, block_size)
    exists = row < batch
    valid = exists & (columns < size)
    length = steps
    if config.has_lengths:
        length = tl.load(lengths + row).to(tl.int32)
    memory += row * area
    grad_memory += row * area
    grad_final_memory += row * area
    at, inside, out = _tile(0, columns, size, block_tile)
    target_weight, gate_weight = _load_weights(weight, 0, columns, config, block_weight)
    zeros = tl.where(tl.sum(target_weight, axis=0) < float("-inf"), 1.0, 0.0)  # as in the forward pass
    if on_chip:
        tile = tl.load(memory + at, mask=inside, other=0.0)
        d_tile = tl.load(grad_final_memory + at, mask=inside & (given_memory != 0), other=0.0)
    dh = load_rows(grad_final, row, columns, exists & (given_final != 0), size)
    zero = tl.zeros([block_size], tl.float32)
    for t in range(length, steps):
        store_parts(zero, zero, zero, parts, row + tl.cast(t, tl.int64) * batch, columns, exists, config)
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
        gate, rotation = restore_step(saved_target, saved_gate, embedded, h, step, config)
        if not has_memory:
            rotated = apply(rotation, h)
        dy, dgate, dh = new_hidden_backward(d + dh, embedded + rotated, gate, saved_gate, h, step, config)
        if has_memory:
            # R_t is the checkpoint saved before step t + 1, if there is one
            source = memory
            stored = ((t + 1) % checkpoint_every == 0) & (t + 1 < length)
            if stored:
                slot = (t + 1) // checkpoint_every - 1
                source = checkpoints + (tl.cast(slot, tl.int64) * batch + row) * area
            # or the memory that the identity has replaced before step t + 1; then the checkpoint is the identity
            if config.has_starts:  # noqa: SIM102 (a condition of the compiler, and one of the kernel)
                if load_starts(starts, index + batch, exists & (t + 1 < length), config):
                    source = replaced + tl.load(slots + index + batch) * area
                    stored = True
            nothing = tl.zeros([groups, block_size], tl.float32)
            sums = (nothing, nothing, nothing, nothing, nothing)
            if on_chip:
                if stored:
                    tile = tl.load(source + at, mask=inside, other=0.0)
                tile, d_tile, sums = rotate_memory_backward(tile, d_tile, dy[:, None], h, rotation, sums, groups)
                if config.has_starts:
                    d_tile = tl.where(started, 0.0, d_tile)
            else:
                reads = memory_reads + index * size
                tl.debug_barrier()
                tl.store(reads + columns, dy, mask=valid)
                tl.debug_barrier()  # the tiles read dy along their rows
                grad_source, grad_given = grad_memory, 1
                if reverse_t == 0:
                    grad_source, grad_given = grad_final_memory, given_memory
                for start in range(0, size, block_tile):
                    at, inside, out = _tile(start, columns, size, block_tile)
                    tile = tl.load(source + at, mask=inside, other=0.0)
                    d_tile = tl.load(grad_source + at, mask=inside & (grad_given != 0), other=0.0)
                    dy_out = tl.load(reads + out, mask=out < size, other=0.0)
                    tile, d_tile, sums = rotate_memory_backward(tile, d_tile, dy_out, h, rotation, sums, groups)
                    tl.store(memory + at, tile, mask=inside)
                    tl.store(grad_memory + at, tl.where(started, 0.0, d_tile), mask=inside)
            du, dw, to_h, of_vectors, of_c = memory_gradients(sums, rotation)
            dembedded, dtarget = rotation_backward(
                du, dw, of_vectors[0], of_vectors[1], of_vectors[2], of_vectors[3], of_c[0], of_c[1], of_c[2], of_c[3],
                rotation,
            )  # fmt: skip
        else:
            dembedded, dtarget, to_h = apply_backward(dy, h, rotation)
        dh += to_h
        dtarget = part_backward(dtarget, saved_target, step, 0, config)
        tl.debug_barrier()  # several threads may hold an element: all have loaded it before one overwrites it
        store_parts(dtarget, dgate, dembedded + dy, parts, index, columns, exists, config)
        if resident:
            to_sums = dtarget[:, None] * target_weight
            if config.gated:
                to_sums += dgate[:, None] * gate_weight
            dh += tl.sum(to_sums, axis=0)
        else:
            tl.debug_barrier()  # all threads have stored their elements
            to_sums, from_gate = _products(
                parts + index * config.width, size, weight, columns, config, block_weight, groups
            )
            dh += to_sums + from_gate
        if config.has_starts:
            dh = tl.where(started, 0.0, dh)

    tl.store(grad_hidden + row * size + columns, dh, mask=valid)
    if on_chip:
        tl.store(grad_memory + at, d_tile, mask=inside)
