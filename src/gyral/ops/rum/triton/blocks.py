"""The kernels for λ = 0 and large batches. A program runs a block of batch rows through all steps."""

import triton
import triton.language as tl

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


@triton.jit
def _load_lengths(lengths, rows, steps, batch, config: tl.constexpr):
    """Return the lengths (K, 1) of the rows, 0 beyond the batch."""
    length = tl.where(rows < batch, steps, 0)
    if config.has_lengths:
        length = tl.load(lengths + rows, mask=rows < batch, other=0).to(tl.int32)
    return length


@triton.jit
def _load_previous(outputs, hidden, t, rows, batch, columns, active, size: tl.constexpr):
    """Return h_{t−1} (K, N), zero where `active` is False."""
    if t > 0:
        h = load_rows(outputs, rows + (tl.cast(t, tl.int64) - 1) * batch, columns, active, size)
    else:
        h = load_rows(hidden, rows, columns, active, size)
    return h


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_blocks(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, final, final_memory, cosines, scales, memory_reads, slots, replaced, checkpoints,
    steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, precision: tl.constexpr, block_batch: tl.constexpr, block_rows: tl.constexpr,
    block_size: tl.constexpr, block_in: tl.constexpr,
):  # fmt: skip
    """Run all steps. The arguments for λ = 1 are not used."""
    size: tl.constexpr = config.size
    first = tl.program_id(0).to(tl.int64) * block_batch
    rows = first + tl.arange(0, block_batch)[:, None]
    columns = tl.arange(0, block_size)
    inside = columns < size
    length = _load_lengths(lengths, rows, steps, batch, config)

    for t in range(steps):
        index = rows + tl.cast(t, tl.int64) * batch
        # the state of a sequence that has ended is not used, so that reading its zero outputs instead is harmless
        read = (rows < batch) & (load_starts(starts, index, t < length, config) == 0)
        for start in range(0, config.recurrent, block_size):
            out = start + tl.arange(0, block_size)
            at = parts + index * config.width + out
            valid = (t < length) & (out < config.recurrent)
            total = tl.load(at, mask=valid, other=0.0)
            for begin in range(0, size, block_in):
                unit = begin + tl.arange(0, block_in)
                factor = _load_previous(outputs, hidden, t, rows, batch, unit, read, size)
                across_at = weight + out * size + unit[:, None]
                across = tl.load(across_at, (unit < size)[:, None] & (out < config.recurrent), 0.0)
                total = tl.dot(factor.to(weight.dtype.element_ty), across, total, input_precision=precision)
            tl.store(at, total, mask=valid)
        tl.debug_barrier()
        for offset in range(0, block_batch, block_rows):
            block = first + offset + tl.arange(0, block_rows)[:, None]
            ends = _load_lengths(lengths, block, steps, batch, config)
            active = t < ends
            block_index = block + tl.cast(t, tl.int64) * batch
            step = StepArguments(
                parts, scales, keep, norms, norms, keep_probability, eta, epsilon, block_index, columns, active
            )
            started = load_starts(starts, block_index, active, config)
            target, gate, embedded = load_parts(parts, block_index, columns, active, config)
            old = _load_previous(outputs, hidden, t, block, batch, columns, active & (started == 0), size)
            tl.debug_barrier()  # several threads may hold an element: all have loaded it before one overwrites it
            gate, rotation = begin_step(target, gate, embedded, old, cosines, step, config)
            new = new_hidden(embedded + apply(rotation, old), gate, old, step, config)
            new = tl.where(active, new, 0.0)
            tl.store(outputs + block_index * size + columns, new, mask=(block < batch) & inside)
            at_end = final + block * size + columns
            tl.store(at_end, new, mask=(t + 1 == ends) & inside)
        tl.debug_barrier()


@triton.jit(do_not_specialize=["given_outputs", "given_final", "given_memory", "steps", "batch"])
def backward_blocks(
    parts, weight, hidden, memory, norms, keep, lengths, starts,
    outputs, scales, memory_reads, slots, replaced, checkpoints,
    grad_outputs, grad_final, grad_final_memory, grad_hidden, grad_memory, grad_norms,
    given_outputs, given_final, given_memory, steps, batch, keep_probability, eta, epsilon,
    config: tl.constexpr, precision: tl.constexpr, block_batch: tl.constexpr, block_rows: tl.constexpr,
    block_size: tl.constexpr, block_in: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse. `grad_hidden` holds the gradient of h_t, `grad_norms` (programs, 3, 2, N) zeros."""
    size: tl.constexpr = config.size
    first = tl.program_id(0).to(tl.int64) * block_batch
    grad_norms += tl.program_id(0) * (6 * size)
    rows = first + tl.arange(0, block_batch)[:, None]
    columns = tl.arange(0, block_size)
    length = _load_lengths(lengths, rows, steps, batch, config)

    for reverse_t in range(steps):
        t = steps - 1 - reverse_t
        for offset in range(0, block_batch, block_rows):
            block = first + offset + tl.arange(0, block_rows)[:, None]
            active = t < _load_lengths(lengths, block, steps, batch, config)
            block_index = block + tl.cast(t, tl.int64) * batch
            step = StepArguments(
                parts, scales, keep, norms, grad_norms, keep_probability, eta, epsilon, block_index, columns, active
            )
            block_started = load_starts(starts, block_index, active, config)
            in_batch = (block < batch) & (columns < size)
            if t == steps - 1:
                grad_next = load_rows(grad_final, block, columns, (block < batch) & (given_final != 0), size)
            else:
                grad_next = load_rows(grad_hidden, block, columns, block < batch, size)
            d = load_rows(grad_outputs, block_index, columns, active & (given_outputs != 0), size)
            d = tl.where(active, d + grad_next, 0.0)
            saved_target, saved_gate, embedded = load_parts(parts, block_index, columns, active, config)
            old = _load_previous(outputs, hidden, t, block, batch, columns, active & (block_started == 0), size)
            gate, rotation = restore_step(saved_target, saved_gate, embedded, old, step, config)
            dy, dgate, dh = new_hidden_backward(d, embedded + apply(rotation, old), gate, saved_gate, old, step, config)
            dembedded, dtarget, dh_rotated = apply_backward(dy, old, rotation)
            dtarget = part_backward(dtarget, saved_target, step, 0, config)
            # d is zero in rows that have ended, and with it all gradients but that of h_t
            dh = tl.where(active, dh + dh_rotated, grad_next)
            tl.debug_barrier()  # all threads that hold an element have loaded it
            store_parts(dtarget, dgate, dembedded + dy, parts, block_index, columns, block < batch, config)
            tl.store(grad_hidden + block * size + columns, dh, mask=in_batch)
        tl.debug_barrier()
        index = rows + tl.cast(t, tl.int64) * batch
        started = load_starts(starts, index, t < length, config)
        for start in range(0, size, block_size):
            out = start + tl.arange(0, block_size)
            at = grad_hidden + rows * size + out
            in_batch = (rows < batch) & (out < size)
            total = tl.load(at, mask=in_batch, other=0.0)
            for begin in range(0, config.recurrent, block_in):
                unit = begin + tl.arange(0, block_in)
                from_at = parts + index * config.width + unit
                factor = tl.load(from_at, mask=(rows < batch) & (unit < config.recurrent), other=0.0)
                along_at = weight + unit[:, None] * size + out
                along = tl.load(along_at, (unit < config.recurrent)[:, None] & (out < size), 0.0)
                total = tl.dot(factor.to(weight.dtype.element_ty), along, total, input_precision=precision)
            tl.store(at, tl.where(started, 0.0, total), mask=in_batch)
        tl.debug_barrier()
