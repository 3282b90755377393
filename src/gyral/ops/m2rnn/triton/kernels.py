"""The kernels. A program runs a strip of rows of the memory of a head through all steps.

What the next step reads is loaded before this one is computed. A memory that is kept is a tile with all its padding.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.triton.rows import tanh


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    heads: int  # H
    groups: int  # G
    key_size: int  # K
    value_size: int  # V
    rows: int  # R, of a strip
    block: int  # V′, V rounded up to a power of 2
    chunk: int  # steps between two memories that are kept
    clipped: bool
    precision: str


class Strip(NamedTuple):
    """Values inside a kernel: the strip of rows (R,) of a head of a row of the batch."""

    program: Any
    many: Any  # the number of programs
    strip: Any  # index of the strip
    row: Any
    batch: Any
    head: Any
    group: Any
    line: Any  # indices of the rows of the memory
    has_line: Any  # whether they exist
    column: Any
    has_column: Any
    at: Any  # offsets (R, V) in (B, H, K, V)
    inside: Any  # whether they exist
    tile: Any  # offsets (R, V) in a memory that is kept


class Inputs(NamedTuple):
    """k (R,), v (V,) and f of a step."""

    key: Any
    vector: Any
    forget: Any


@triton.jit
def _strip(batch, config: tl.constexpr):
    """Return the strip of this program."""
    strips: tl.constexpr = (config.key_size + config.rows - 1) // config.rows
    program, many = tl.program_id(0).to(tl.int64), batch.to(tl.int64)
    strip, head, row = program % strips, program // strips % config.heads, program // (strips * config.heads)
    line, column = strip * config.rows + tl.arange(0, config.rows), tl.arange(0, config.block)
    has_line, has_column = line < config.key_size, column < config.value_size
    at = ((row * config.heads + head) * config.key_size + line)[:, None] * config.value_size + column[None, :]
    group = head // (config.heads // config.groups)
    tile = tl.arange(0, config.rows)[:, None] * config.block + column[None, :]
    inside = has_line[:, None] & has_column[None, :]
    count = many * (config.heads * strips)
    return Strip(program, count, strip, row, many, head, group, line, has_line, column, has_column, at, inside, tile)


@triton.jit
def _load_keys(values, place, s, mask, config: tl.constexpr):
    """Return the rows (R,) of q or k at step `place` = t B + row."""
    at = values + ((place * config.groups + s.group) * config.key_size + s.line)
    return tl.load(at, mask=s.has_line & mask, other=0.0)


@triton.jit
def _load_values(values, place, s, mask, config: tl.constexpr):
    """Return the numbers (V,) of v at step `place` = t B + row, or of the gradient of the outputs."""
    at = values + ((place * config.heads + s.head) * config.value_size + s.column)
    return tl.load(at, mask=s.has_column & mask, other=0.0)


@triton.jit
def _load_inputs(k, v, forget, place, s, mask, config: tl.constexpr):
    """Return what changes the memory at a step, zeros beyond the mask."""
    f = tl.load(forget + (place * config.heads + s.head), mask=mask, other=0.0)
    return Inputs(_load_keys(k, place, s, mask, config), _load_values(v, place, s, mask, config), f)


@triton.jit
def _started(starts, place, mask):
    """Return whether the row is reset before step `place` = t B + row, False beyond the mask."""
    found = False
    if starts is not None:
        found = tl.load(starts + place, mask=mask, other=0) != 0
    return found


@triton.jit
def _load_weight(weight, s, turned: tl.constexpr, config: tl.constexpr):
    """Return W of the head, or its transpose."""
    column = tl.arange(0, config.block)
    inside = (column < config.value_size)[:, None] & (column < config.value_size)[None, :]
    at = column[:, None] * config.value_size + column[None, :]
    if turned:
        at = column[None, :] * config.value_size + column[:, None]
    return tl.load(weight + (s.head * (config.value_size * config.value_size) + at), mask=inside, other=0.0)


@triton.jit
def _candidate(memory, weight, inputs, config: tl.constexpr):
    """Return tanh(S W + k vᵀ)."""
    written = inputs.key[:, None] * inputs.vector[None, :]
    return tanh(tl.dot(memory, weight, written, input_precision=config.precision))


@triton.jit(do_not_specialize=["steps", "batch"])
def forward_m2rnn(
    q, k, v, forget, weight, s0, lengths, starts, outputs, final, kept, steps, batch, config: tl.constexpr
):
    """Run all steps.

    Args:
        q, k, v, forget, weight, s0: See `gyral.ops.m2rnn.naive.m2rnn`.
        lengths, starts: See `gyral.ops.triton.sequences`.
        outputs: (strips, T, B, H, V), what the rows of each strip add to the outputs.
        final: (B, H, K, V), the memory after the last step.
        kept: (chunks, B, H, strips, R, V′), the memory before each chunk.
    """
    s = _strip(batch, config)
    area: tl.constexpr = config.rows * config.block
    length = steps if lengths is None else tl.load(lengths + s.row).to(tl.int32)
    total = steps.to(tl.int64) * s.batch
    outputs += s.strip * total * (config.heads * config.value_size)
    w = _load_weight(weight, s, False, config)
    memory = tl.load(s0 + s.at, mask=s.inside, other=0.0)
    coming = _load_inputs(k, v, forget, s.row, s, True, config)
    query = _load_keys(q, s.row, s, True, config)
    for begin in range(0, length, config.chunk):
        tl.store(kept + ((begin // config.chunk) * s.many + s.program) * area + s.tile, memory)
        for t in range(begin, tl.minimum(begin + config.chunk, length)):
            place = tl.cast(t, tl.int64) * s.batch + s.row
            inputs, reader, ahead = coming, query, t + 1 < length
            coming = _load_inputs(k, v, forget, place + s.batch, s, ahead, config)
            query = _load_keys(q, place + s.batch, s, ahead, config)
            if starts is not None:
                memory = tl.where(_started(starts, place, True), 0.0, memory)
            candidate = _candidate(memory, w, inputs, config)
            memory = inputs.forget * memory + (1.0 - inputs.forget) * candidate
            y = tl.sum(reader[:, None] * memory, axis=0)
            to = outputs + ((place * config.heads + s.head) * config.value_size + s.column)
            tl.store(to, y, mask=s.has_column)
    tl.store(final + s.at, memory, mask=s.inside)
    for t in range(length, steps):
        place = tl.cast(t, tl.int64) * s.batch + s.row
        to = outputs + ((place * config.heads + s.head) * config.value_size + s.column)
        tl.store(to, tl.zeros(s.column.shape, tl.float32), mask=s.has_column)


@triton.jit
def _store_gradients(dq, dk, dv, df, grad_q, grad_k, grad_v, grad_forget, place, s, config: tl.constexpr):
    """Store the gradients at step `place` = t B + row: of q and k (T, B, H, K), v (T, B, H, V) and f (T, B, H)."""
    at = place * config.heads + s.head
    tl.store(grad_q + (at * config.key_size + s.line), dq, mask=s.has_line)
    tl.store(grad_k + (at * config.key_size + s.line), dk, mask=s.has_line)
    tl.store(grad_v + (at * config.value_size + s.column), dv, mask=s.has_column)
    tl.store(grad_forget + at, df)


@triton.jit(do_not_specialize=["steps", "batch", "clip"])
def backward_m2rnn(
    q, k, v, forget, weight, lengths, starts, kept, before, grad_outputs, grad_final,
    grad_q, grad_k, grad_v, grad_forget, grad_weight, grad_s0, clip, steps, batch, config: tl.constexpr,
):  # fmt: skip
    """Run all steps in reverse, a chunk after the other: first forward from the memory that is kept, then back.

    Args:
        kept: What the forward pass has kept.
        before: (B, H, strips, C, R, V′), where the memory before each step of a chunk is stored.
        grad_outputs, grad_final: Gradients of the results, or None.
        grad_q, grad_k: (T, B, H, K), the gradients through each head.
        grad_v, grad_forget: (strips, T, B, H, V) and (strips, T, B, H), the gradients through each strip.
        grad_weight: (B, H, strips, V, V), parts of the gradient of W.
        grad_s0: The gradient of the memory before the first step.
        clip: The bound of the gradient of the memory.
    """
    s = _strip(batch, config)
    area: tl.constexpr = config.rows * config.block
    length = steps if lengths is None else tl.load(lengths + s.row).to(tl.int32)
    total = steps.to(tl.int64) * s.batch * config.heads
    grad_v += s.strip * total * config.value_size
    grad_forget += s.strip * total
    before += s.program * (config.chunk * area)
    line = tl.arange(0, config.rows)
    turned_at = line[None, :] * config.block + s.column[:, None]
    w, w_turned = _load_weight(weight, s, False, config), _load_weight(weight, s, True, config)
    dw = tl.zeros(w.shape, tl.float32)
    g = tl.zeros(s.tile.shape, tl.float32)
    if grad_final is not None:
        g = tl.load(grad_final + s.at, mask=s.inside, other=0.0)
    no_keys, no_values = tl.zeros(line.shape, tl.float32), tl.zeros(s.column.shape, tl.float32)
    for t in range(length, steps):
        place = tl.cast(t, tl.int64) * s.batch + s.row
        _store_gradients(no_keys, no_keys, no_values, 0.0, grad_q, grad_k, grad_v, grad_forget, place, s, config)
    chunks = (length + config.chunk - 1) // config.chunk
    for back in range(chunks):
        begin = (chunks - 1 - back) * config.chunk
        end = tl.minimum(begin + config.chunk, length)
        memory = tl.load(kept + ((begin // config.chunk) * s.many + s.program) * area + s.tile)
        first = tl.cast(begin, tl.int64) * s.batch + s.row
        coming = _load_inputs(k, v, forget, first, s, True, config)
        for t in range(begin, end):
            place = tl.cast(t, tl.int64) * s.batch + s.row
            inputs = coming
            coming = _load_inputs(k, v, forget, place + s.batch, s, t + 1 < end, config)
            if starts is not None:
                memory = tl.where(_started(starts, place, True), 0.0, memory)
            tl.store(before + (t - begin) * area + s.tile, memory)
            candidate = _candidate(memory, w, inputs, config)
            memory = inputs.forget * memory + (1.0 - inputs.forget) * candidate
        tl.debug_barrier()  # other threads read what is stored
        last = tl.cast(end - 1, tl.int64) * s.batch + s.row
        coming = _load_inputs(k, v, forget, last, s, True, config)
        query = _load_keys(q, last, s, True, config)
        dy = no_values
        if grad_outputs is not None:
            dy = _load_values(grad_outputs, last, s, True, config)
        for index in range(end - begin):
            t = end - 1 - index
            place = tl.cast(t, tl.int64) * s.batch + s.row
            memory = tl.load(before + (t - begin) * area + s.tile)
            turned = tl.load(before + (t - begin) * area + turned_at)
            inputs, reader, of_output, behind = coming, query, dy, t > begin
            coming = _load_inputs(k, v, forget, place - s.batch, s, behind, config)
            query = _load_keys(q, place - s.batch, s, behind, config)
            if grad_outputs is not None:
                dy = _load_values(grad_outputs, place - s.batch, s, behind, config)
            candidate = _candidate(memory, w, inputs, config)
            after = inputs.forget * memory + (1.0 - inputs.forget) * candidate
            g += reader[:, None] * of_output[None, :]
            if config.clipped:  # a NaN stays a NaN
                g = tl.where(g < -clip, -clip, tl.where(g > clip, clip, g))
            da = (1.0 - inputs.forget) * g * (1.0 - candidate * candidate)
            dq, dk = tl.sum(after * of_output[None, :], axis=1), tl.sum(da * inputs.vector[None, :], axis=1)
            dv = tl.sum(da * inputs.key[:, None], axis=0)
            df = tl.sum(tl.sum(g * (memory - candidate), axis=1), axis=0)
            _store_gradients(dq, dk, dv, df, grad_q, grad_k, grad_v, grad_forget, place, s, config)
            dw = tl.dot(turned, da, dw, input_precision=config.precision)
            g = tl.dot(da, w_turned, inputs.forget * g, input_precision=config.precision)
            if starts is not None:
                g = tl.where(_started(starts, place, True), 0.0, g)
        tl.debug_barrier()  # other threads have read what the next chunk overwrites
    tl.store(grad_s0 + s.at, g, mask=s.inside)
    column = tl.arange(0, config.block)
    to = s.program * (config.value_size * config.value_size) + column[:, None] * config.value_size + s.column[None, :]
    tl.store(grad_weight + to, dw, mask=(column < config.value_size)[:, None] & s.has_column[None, :])
