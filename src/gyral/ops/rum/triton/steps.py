"""The row-wise kernels of one step, for hidden sizes whose weights do not fit into the registers of a program.

torch computes the recurrent product of all rows before each step, and backward after it; `loop` runs the steps. A
program has one row. `memory_steps` has the kernels of the memory of λ = 1.
"""

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
def load_length(lengths, row, steps, config: tl.constexpr):
    """Return the number of steps of the sequence of a row."""
    length = steps
    if config.has_lengths:
        length = tl.load(lengths + row).to(tl.int32)
    return length


@triton.jit
def load_previous(outputs, hidden, t, row, batch, columns, active, size: tl.constexpr):
    """Return h_{t−1} (N,), zero where `active` is False."""
    index = row + (tl.cast(t, tl.int64) - 1) * batch
    h = load_rows(outputs, index, columns, active & (t > 0), size)
    return h + load_rows(hidden, row, columns, active & (t == 0), size)


@triton.jit
def load_sums(parts, products, index, row, columns, active, started, config: tl.constexpr):
    """Return the sums of target and gate, and the embedded input, given the products W_hh h_{t−1} (B, (G − 1) N)."""
    target, gate, embedded = load_parts(parts, index, columns, active, config)
    valid = active & (started == 0) & (columns < config.size)
    at = products + row * config.recurrent + columns
    target += tl.load(at, mask=valid, other=0.0).to(tl.float32)
    if config.gated:
        gate += tl.load(at + config.size, mask=valid, other=0.0).to(tl.float32)
    return target, gate, embedded


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
    length = load_length(lengths, row, steps, config)
    active = t < length
    started = load_starts(starts, index, active, config)
    step = StepArguments(parts, scales, keep, norms, norms, keep_probability, eta, epsilon, index, columns, active)
    target, gate, embedded = load_sums(parts, products, index, row, columns, active, started, config)
    h = load_previous(outputs, hidden, t, row, batch, columns, active & (started == 0), size)
    tl.debug_barrier()  # several threads may hold an element: all have loaded the sums before one overwrites them
    gate, rotation = begin_step(target, gate, embedded, h, cosines, step, config)
    rotated = load_rows(memory_reads, index, columns, active, size) if has_memory else apply(rotation, h)
    new = tl.where(active, new_hidden(embedded + rotated, gate, h, step, config), 0.0)
    tl.store(outputs + index * size + columns, new, mask=columns < size)
    tl.store(final + row * size + columns, new, mask=(t + 1 == length) & (columns < size))
    if rounds:
        tl.store(rounded + row * size + columns, new.to(rounded.dtype.element_ty), mask=columns < size)


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
    length = load_length(lengths, row, steps, config)
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
    h = load_previous(outputs, hidden, t, row, batch, columns, active & (started == 0), size)
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
