"""The kernels. A program runs some blocks of one row through all steps; registers carry the state or its gradient.

A step reads b numbers for each unit and computes as many products, so that its latency counts and not its memory: a
parallel scan would compose matrices, b times as many products at each of its levels. A step needs no other thread
where the blocks of a program fit into one warp. The matrices of some steps are loaded before those before them are
used, which hides the latency of memory.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Config(NamedTuple):
    """Compile-time constants of a kernel."""

    size: int  # N
    block: int  # b
    width: int  # b rounded up to a power of 2
    group: int  # blocks of a program
    ahead: int  # steps that are loaded together


class Blocks(NamedTuple):
    """Values inside a kernel: the blocks of a program, (K, W), and their matrices, (K, W, W)."""

    unit: Any  # indices of the units
    here: Any  # whether they exist
    at: Any  # places in the rows (N, b) of a matrix
    inside: Any  # whether they exist, in blocks that are not full
    row: Any


@triton.jit
def _blocks(config: tl.constexpr):
    """Return the blocks of this program."""
    groups: tl.constexpr = (config.size + config.group * config.block - 1) // (config.group * config.block)
    program = tl.program_id(0).to(tl.int64)
    index = (program % groups * config.group).to(tl.int32) + tl.arange(0, config.group)
    place = tl.arange(0, config.width)
    unit = index[:, None] * config.block + place[None, :]
    here = (place < config.block)[None, :] & (unit < config.size)
    at = unit[:, :, None] * config.block + place[None, None, :]
    return Blocks(unit, here, at, here[:, :, None] & here[:, None, :], program // groups)


@triton.jit
def _length(lengths, row, steps):
    """Return the length of a row."""
    return steps if lengths is None else tl.load(lengths + row).to(tl.int32)


@triton.jit
def _load(pointer, place, blocks, mask, config: tl.constexpr):
    """Return the vectors (K, W) at a place in (T, B); zeros where there is none, or beyond the mask ()."""
    return tl.load(pointer + place * config.size + blocks.unit, mask=blocks.here & mask, other=0.0)


@triton.jit
def _load_matrices(change, place, blocks, mask, config: tl.constexpr):
    """Return the matrices (K, W, W) at a place in (T, B), as `_load`."""
    at = change + place * (config.size * config.block) + blocks.at
    return tl.load(at, mask=blocks.inside & mask, other=0.0)


@triton.jit
def _is_first(starts, begins, t, place, mask):
    """Return whether h_t has no state before it, at a place in (T, B); False beyond the mask ()."""
    found = begins & (t == 0) & mask
    return found if starts is None else found | (tl.load(starts + place, mask=mask, other=0) != 0)


@triton.jit
def _load_forward(change, values, starts, begins, t, length, rows, blocks, config: tl.constexpr):
    """Return for some steps from t on: matrices, values, and whether h_t is these; tuples."""
    together: tl.constexpr = config.ahead
    matrices, vectors, firsts = (), (), ()
    for ahead in tl.static_range(together):
        exists, place = t + ahead < length, tl.cast(t + ahead, tl.int64) * rows + blocks.row
        first = _is_first(starts, begins, t + ahead, place, exists)
        matrix = _load_matrices(change, place, blocks, exists, config)
        vector = _load(values, place, blocks, first, config)
        matrices, vectors = matrices + (matrix,), vectors + (vector,)  # type: ignore[assignment]  # noqa: RUF005
        firsts = firsts + (first,)  # type: ignore[assignment]  # noqa: RUF005 (Triton has no other form)
    return matrices, vectors, firsts


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_blocks(change, values, h0, fresh, lengths, starts, outputs, final, steps, rows, config: tl.constexpr):
    """Write the outputs (T, B, N), zero beyond the lengths, and the state after the last step (B, N).

    Args:
        change, values, h0, fresh, lengths, starts: See `gyral.ops.block_scan.naive.block_scan`; starts are uint8.
    """
    together: tl.constexpr = config.ahead
    blocks = _blocks(config)
    length = _length(lengths, blocks.row, steps)
    begins = tl.load(fresh + blocks.row) > 0
    h = _load(h0, blocks.row, blocks, True, config)
    later = _load_forward(change, values, starts, begins, 0, length, rows, blocks, config)
    for first_step in range(0, length, together):
        matrices, vectors, firsts = later
        later = _load_forward(change, values, starts, begins, first_step + together, length, rows, blocks, config)
        for ahead in tl.static_range(together):
            t = first_step + ahead
            changed = h + tl.sum(matrices[ahead] * h[:, None, :], axis=2)
            exists = t < length
            h = tl.where(firsts[ahead], vectors[ahead], tl.where(exists, changed, h))
            place = tl.cast(t, tl.int64) * rows + blocks.row
            tl.store(outputs + place * config.size + blocks.unit, h, mask=blocks.here & exists)
    for t in range(length, steps):
        place = tl.cast(t, tl.int64) * rows + blocks.row
        tl.store(outputs + place * config.size + blocks.unit, tl.zeros(h.shape, tl.float32), mask=blocks.here)
    tl.store(final + blocks.row * config.size + blocks.unit, h, mask=blocks.here)


@triton.jit
def _load_backward(change, h0, starts, begins, outputs, grad_outputs, t, rows, blocks, config: tl.constexpr):
    """Return for some steps from t back: matrices, h_{t−1}, gradients of h_t as an output, and marks; tuples."""
    together: tl.constexpr = config.ahead
    matrices, before, gradients, firsts = (), (), (), ()
    for ahead in tl.static_range(together):
        step = t - ahead
        exists, place = step >= 0, tl.cast(step, tl.int64) * rows + blocks.row
        first = _is_first(starts, begins, step, place, exists)
        h = _load(outputs, place - rows, blocks, step > 0, config) + _load(h0, blocks.row, blocks, step == 0, config)
        d = h
        if grad_outputs is not None:
            d = _load(grad_outputs, place, blocks, exists, config)
        matrix = _load_matrices(change, place, blocks, exists, config)
        matrices, before = matrices + (matrix,), before + (h,)  # type: ignore[assignment]  # noqa: RUF005
        gradients, firsts = gradients + (d,), firsts + (first,)  # type: ignore[assignment]  # noqa: RUF005
    return matrices, before, gradients, firsts


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_blocks(
    change,
    h0,
    fresh,
    lengths,
    starts,
    outputs,
    grad_outputs,
    grad_final,
    grad_change,
    grad_values,
    grad_h0,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write all gradients. `grad_outputs` and `grad_final` may be None.

    That of h_t is d_t = dy_t + d_{t+1} + A_{t+1}ᵀ d_{t+1}, and that of A_t is d_t h_{t−1}ᵀ.
    """
    together: tl.constexpr = config.ahead
    blocks = _blocks(config)
    length = _length(lengths, blocks.row, steps)
    begins = tl.load(fresh + blocks.row) > 0
    d = tl.zeros(blocks.here.shape, tl.float32)
    if grad_final is not None:
        d = _load(grad_final, blocks.row, blocks, True, config)
    for t in range(length, steps):
        place = tl.cast(t, tl.int64) * rows + blocks.row
        if starts is not None:
            tl.store(grad_values + place * config.size + blocks.unit, tl.zeros(d.shape, tl.float32), mask=blocks.here)
        to = grad_change + place * (config.size * config.block) + blocks.at
        tl.store(to, tl.zeros(blocks.inside.shape, tl.float32), mask=_rows(blocks, config))
    of_value = tl.zeros(d.shape, tl.float32)
    later = _load_backward(change, h0, starts, begins, outputs, grad_outputs, length - 1, rows, blocks, config)
    for done in range(0, length, together):
        last = length - 1 - done
        matrices, before, gradients, firsts = later
        later = _load_backward(change, h0, starts, begins, outputs, grad_outputs, last - together, rows, blocks, config)
        for ahead in tl.static_range(together):
            t = last - ahead
            exists, first, place = t >= 0, firsts[ahead], tl.cast(t, tl.int64) * rows + blocks.row
            if grad_outputs is not None:
                d += gradients[ahead]
            own = tl.where(first, 0.0, d)
            of_value = tl.where(exists, tl.where(first, d, 0.0), of_value)
            if starts is not None:
                tl.store(grad_values + place * config.size + blocks.unit, of_value, mask=blocks.here & exists)
            outer = own[:, :, None] * before[ahead][:, None, :]
            outer = tl.where(first | (blocks.inside == 0), 0.0, outer)
            to = grad_change + place * (config.size * config.block) + blocks.at
            tl.store(to, outer, mask=_rows(blocks, config) & exists)
            d = own + tl.sum(matrices[ahead] * own[:, :, None], axis=1)
    if starts is None:  # of the first step alone
        tl.store(grad_values + blocks.row * config.size + blocks.unit, of_value, mask=blocks.here)
    tl.store(grad_h0 + blocks.row * config.size + blocks.unit, d, mask=blocks.here)


@triton.jit
def _rows(blocks, config: tl.constexpr):
    """Return which places of the matrices (K, W, W) are in memory, where no unit needs to be."""
    return blocks.here[:, :, None] & (tl.arange(0, config.width) < config.block)[None, None, :]
