"""The kernels for λ = 0. A program runs a block of batch rows through all steps."""

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


@triton.jit
def _forward_step(target, gate, h, cosines, step, config: tl.constexpr):
    """Return h_t (K, N), given the sums of target and gate, and h_{t−1}."""
    target, gate, embedded = finish_parts(target, gate, step, config)
    rotation = rotation_between(target, embedded, step.columns, config.size)
    tl.store(cosines + step.rows[:, None], rotation.cosine, mask=step.active[:, None])
    alpha, beta = dot(rotation.u, h), dot(rotation.w, h)
    rotated = (
        h
        + (rotation.c11 * alpha + rotation.c12 * beta) * rotation.u
        + (rotation.c21 * alpha + rotation.c22 * beta) * rotation.w
    )
    return new_hidden(embedded + rotated, gate, h, step, config)


@triton.jit
def _backward_step(d, h, step, config: tl.constexpr):
    """Return the gradients of the sums of target and gate, of the embedded input and of h_{t−1}.

    The gradient of h_{t−1} does not include the path through the sums.
    """
    saved_target, saved_gate, target, gate, embedded = load_parts(step, config)
    rotation = rotation_between(target, embedded, step.columns, config.size)
    u, w = rotation.u, rotation.w
    alpha, beta = dot(u, h), dot(w, h)
    along_u, along_w = rotation.c11 * alpha + rotation.c12 * beta, rotation.c21 * alpha + rotation.c22 * beta
    rotated = h + along_u * u + along_w * w
    dy, dgate, dh = new_hidden_backward(d, embedded + rotated, gate, saved_gate, h, step, config)

    p, q = dot(u, dy), dot(w, dy)
    dalpha, dbeta = rotation.c11 * p + rotation.c21 * q, rotation.c12 * p + rotation.c22 * q
    du, dw = along_u * dy + dalpha * h, along_w * dy + dbeta * h
    dembedded, dtarget = rotation_backward(du, dw, alpha * p, beta * p, alpha * q, beta * q, rotation)
    dtarget = target_backward(dtarget, saved_target, step, config)
    return dtarget, dgate, dembedded + dy, dh + dy + dalpha * u + dbeta * w


@triton.jit
def _load_weights(weight, along_out, along_in, config: tl.constexpr):
    """Return both recurrent weights, output units along the dimension of `along_out`, input units along `along_in`."""
    size: tl.constexpr = config.size
    inside = (along_out < size) & (along_in < size)
    at = weight + along_out * size + along_in
    target_weight = tl.load(at, mask=inside, other=0.0)
    gate_weight = target_weight
    if config.gated:
        gate_weight = tl.load(at + size * size, mask=inside, other=0.0)
    return target_weight, gate_weight


@triton.jit
def _add_product(total, rows, weight, precision: tl.constexpr):
    """Return total + rows weight, (K, N). Tensor cores have no product of a single row, and need not wait for one."""
    if rows.shape[0] == 1:
        total += tl.sum(tl.trans(rows).to(tl.float32) * weight.to(tl.float32), axis=0, keep_dims=True)
    else:
        total = tl.dot(rows, weight, total, input_precision=precision)
    return total


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_without_memory(
    parts,
    weight,
    hidden,
    norms,
    keep,
    lengths,
    starts,
    outputs,
    final,
    cosines,
    scales,
    steps,
    batch,
    keep_probability,
    eta,
    epsilon,
    config: tl.constexpr,
    precision: tl.constexpr,
    resident: tl.constexpr,
    block_batch: tl.constexpr,
    block_rows: tl.constexpr,
    block_size: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
):
    size: tl.constexpr = config.size
    width: tl.constexpr = config.width
    recurrent: tl.constexpr = config.recurrent
    first = tl.program_id(0).to(tl.int64) * block_batch
    rows = first + tl.arange(0, block_batch)
    columns = tl.arange(0, block_size)
    inside = (columns < size)[None, :]
    length = tl.load(lengths + rows, mask=rows < batch, other=0)
    if resident:
        h = tl.load(hidden + rows[:, None] * size + columns[None, :], (rows < batch)[:, None] & inside, 0.0)
        target_weight, gate_weight = _load_weights(weight, columns[None, :], columns[:, None], config)

    for t in range(steps):
        step_offset = tl.cast(t, tl.int64) * batch
        parts_t, outputs_t = parts + step_offset * width, outputs + step_offset * size
        scales_t, keep_t = scales + step_offset * 2, keep + step_offset * size
        if resident:
            active = t < length
            step = StepArguments(
                parts_t, scales_t, keep_t, norms, norms, keep_probability, eta, epsilon, rows, columns, active
            )
            valid = active[:, None] & inside
            if config.has_starts:
                h = tl.where(load_starts(starts + step_offset, rows, active, config)[:, None], 0.0, h)
            at = parts_t + rows[:, None] * width + columns[None, :]
            factor = h.to(weight.dtype.element_ty)
            target = tl.load(at, mask=valid, other=0.0)
            target = _add_product(target, factor, target_weight, precision)
            gate = target
            if config.gated:
                gate = tl.load(at + size, mask=valid, other=0.0)
                gate = _add_product(gate, factor, gate_weight, precision)
            h = _forward_step(target, gate, h, cosines + step_offset, step, config)
            here = rows[:, None] * size + columns[None, :]
            tl.store(outputs_t + here, tl.where(valid, h, 0.0), mask=(rows < batch)[:, None] & inside)
            tl.store(final + here, h, mask=(t + 1 == length)[:, None] & inside)
        else:
            # the state of a sequence that has ended is not used, so that reading its zero outputs instead is harmless
            previous = hidden
            if t > 0:
                previous = outputs + (step_offset - batch) * size
            started = load_starts(starts + step_offset, rows, t < length, config)
            for start in range(0, recurrent, block_out):
                out = start + tl.arange(0, block_out)
                at = parts_t + rows[:, None] * width + out[None, :]
                valid = (t < length)[:, None] & (out < recurrent)[None, :]
                total = tl.load(at, mask=valid, other=0.0)
                for begin in range(0, size, block_in):
                    unit = begin + tl.arange(0, block_in)
                    from_at = previous + rows[:, None] * size + unit[None, :]
                    read = ((rows < batch) & (started == 0))[:, None] & (unit < size)[None, :]
                    factor = tl.load(from_at, mask=read, other=0.0)
                    across_at = weight + out[None, :] * size + unit[:, None]
                    across = tl.load(across_at, (unit < size)[:, None] & (out < recurrent)[None, :], 0.0)
                    total = tl.dot(factor.to(weight.dtype.element_ty), across, total, input_precision=precision)
                tl.store(at, total, mask=valid)
            tl.debug_barrier()
            for offset in range(0, block_batch, block_rows):
                block = first + offset + tl.arange(0, block_rows)
                ends = tl.load(lengths + block, mask=block < batch, other=0)
                active = t < ends
                step = StepArguments(
                    parts_t, scales_t, keep_t, norms, norms, keep_probability, eta, epsilon, block, columns, active
                )
                block_started = load_starts(starts + step_offset, block, active, config)
                valid = active[:, None] & inside
                at = parts_t + block[:, None] * width + columns[None, :]
                target = tl.load(at, mask=valid, other=0.0)
                gate = target
                if config.gated:
                    gate = tl.load(at + size, mask=valid, other=0.0)
                here = block[:, None] * size + columns[None, :]
                old = tl.load(previous + here, mask=valid & (block_started == 0)[:, None], other=0.0)
                new = _forward_step(target, gate, old, cosines + step_offset, step, config)
                tl.store(outputs_t + here, tl.where(valid, new, 0.0), mask=(block < batch)[:, None] & inside)
                tl.store(final + here, new, mask=(t + 1 == ends)[:, None] & inside)
            tl.debug_barrier()


@triton.jit(do_not_specialize=["steps", "batch"])
def backward_without_memory(
    parts,
    weight,
    hidden,
    norms,
    keep,
    lengths,
    starts,
    outputs,
    scales,
    grad_outputs,
    grad_hidden,
    grad_norms,
    steps,
    batch,
    keep_probability,
    eta,
    epsilon,
    config: tl.constexpr,
    precision: tl.constexpr,
    resident: tl.constexpr,
    block_batch: tl.constexpr,
    block_rows: tl.constexpr,
    block_size: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
):
    """Run all steps in reverse; `grad_hidden` holds the gradient of h_t, `grad_norms` (programs, 3, 2, N) zeros."""
    size: tl.constexpr = config.size
    width: tl.constexpr = config.width
    recurrent: tl.constexpr = config.recurrent
    first = tl.program_id(0).to(tl.int64) * block_batch
    grad_norms += tl.program_id(0) * (6 * size)
    rows = first + tl.arange(0, block_batch)
    columns = tl.arange(0, block_size)
    inside = (columns < size)[None, :]
    if resident:
        target_weight, gate_weight = _load_weights(weight, columns[:, None], columns[None, :], config)

    for reverse_t in range(steps):
        t = steps - 1 - reverse_t
        step_offset = tl.cast(t, tl.int64) * batch
        parts_t, grad_outputs_t = parts + step_offset * width, grad_outputs + step_offset * size
        scales_t, keep_t = scales + step_offset * 2, keep + step_offset * size
        previous = hidden
        if t > 0:
            previous = outputs + (step_offset - batch) * size
        for offset in range(0, block_batch, block_rows):
            block = first + offset + tl.arange(0, block_rows)
            active = t < tl.load(lengths + block, mask=block < batch, other=0)
            step = StepArguments(
                parts_t, scales_t, keep_t, norms, grad_norms, keep_probability, eta, epsilon, block, columns, active
            )
            block_started = load_starts(starts + step_offset, block, active, config)
            in_batch = (block < batch)[:, None] & inside
            valid = active[:, None] & inside
            here = block[:, None] * size + columns[None, :]
            grad_next = tl.load(grad_hidden + here, mask=in_batch, other=0.0)
            d = tl.where(valid, grad_next + tl.load(grad_outputs_t + here, mask=valid, other=0.0), 0.0)
            old = tl.load(previous + here, mask=valid & (block_started == 0)[:, None], other=0.0)
            dtarget, dgate, dembedded, dh = _backward_step(d, old, step, config)
            dtarget = tl.where(valid, dtarget, 0.0)
            dgate = tl.where(valid, dgate, 0.0)
            dh = tl.where(valid, dh, grad_next)
            tl.debug_barrier()  # all threads that hold an element have loaded it
            at = parts_t + block[:, None] * width + columns[None, :]
            tl.store(at, dtarget, mask=in_batch)
            if config.gated:
                tl.store(at + size, dgate, mask=in_batch)
            tl.store(at + recurrent, tl.where(valid, dembedded, 0.0), mask=in_batch)
            if resident:
                dh = _add_product(dh, dtarget.to(weight.dtype.element_ty), target_weight, precision)
                if config.gated:
                    dh = _add_product(dh, dgate.to(weight.dtype.element_ty), gate_weight, precision)
            if config.has_starts:
                dh = tl.where(block_started[:, None], 0.0, dh)
            tl.store(grad_hidden + here, dh, mask=in_batch)
        tl.debug_barrier()
        if not resident:
            ends = tl.load(lengths + rows, mask=rows < batch, other=0)
            started = load_starts(starts + step_offset, rows, t < ends, config)
            for start in range(0, size, block_out):
                out = start + tl.arange(0, block_out)
                at = grad_hidden + rows[:, None] * size + out[None, :]
                in_batch = (rows < batch)[:, None] & (out < size)[None, :]
                total = tl.load(at, mask=in_batch, other=0.0)
                for begin in range(0, recurrent, block_in):
                    unit = begin + tl.arange(0, block_in)
                    from_at = parts_t + rows[:, None] * width + unit[None, :]
                    factor = tl.load(from_at, mask=(rows < batch)[:, None] & (unit < recurrent)[None, :], other=0.0)
                    along_at = weight + unit[:, None] * size + out[None, :]
                    along = tl.load(along_at, (unit < recurrent)[:, None] & (out < size)[None, :], 0.0)
                    total = tl.dot(factor.to(weight.dtype.element_ty), along, total, input_precision=precision)
                tl.store(at, tl.where(started[:, None], 0.0, total), mask=in_batch)
            tl.debug_barrier()
