"""The kernels. Registers carry the states of some channels of a row from a chunk of steps to the next one.

Forward keeps the states before each chunk. Backward has a kernel that carries the gradient of the states from the last
chunk to the first one and does nothing else, and one in which all chunks run at once: it computes their states again.
A program of it has all channels of a row, so that it sums the gradients of B_t and C_t itself.

Steps beyond the length of a row have Δ = 0, so that the state at the end is that after its last step.
"""

import triton
import triton.language as tl

from gyral.ops.triton.exponentials import exp_minus_one, softplus
from gyral.ops.triton.rows import sigmoid
from gyral.ops.triton.scan import last_row, load_pair, scan_tile
from gyral.ops.triton.sequences import load_lengths, steps_of
from gyral.ops.triton.states import lanes, marks_of, of_channels, of_states, scan_back, sum_channels, sum_states

CHUNK = tl.constexpr(16)  # L, the steps of a tile, and between the states that are kept


@triton.jit
def _matrices(matrices, place, valid, config: tl.constexpr):
    """Return B_t and C_t, (L, S)."""
    state = tl.arange(0, config.width)[None, :]
    at = place * (2 * config.states) + state
    return load_pair(matrices + at, config.states, valid & (state < config.states), True)


@triton.jit
def _load(values, gate, step, matrices, t, row, length, steps, rows, channel, here, config: tl.constexpr):
    """Return values, gate and step sizes, (L, K), and B_t and C_t, (L, S), at the steps t (L,). `values` may be None.

    A loop that needs those of a chunk loads those of the next one before it begins, so that it does not wait.
    """
    at, _, valid, _ = steps_of(t, row, length, None, steps, rows)
    inside, b_c = valid & here[None, :], _matrices(matrices, at, valid, config)
    at = at * config.size + channel[None, :]
    z, raw = tl.load(gate + at, mask=inside, other=0.0), tl.load(step + at, mask=inside, other=0.0)
    x = tl.zeros_like(z) if values is None else tl.load(values + at, mask=inside, other=0.0)
    return x, z, raw, b_c[0], b_c[1]


@triton.jit
def _rates(rate, place, here):
    """Return A (K S,)."""
    return tl.where(here, -tl.exp(tl.load(rate + place, mask=here, other=0.0)), 0.0)


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_states(
    u,
    gate,
    step,
    matrices,
    rate,
    bias,
    skip,
    h0,
    lengths,
    starts,
    outputs,
    final,
    kept,
    step_sizes,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the outputs and step sizes Δ (T, B, N), and the states (B, N, S) after the last step and before each chunk.

    Those before the chunks are `kept` (⌈T / L⌉, B, N, S).
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // config.groups + tl.zeros([1], tl.int64)
    channel, here, place, has_state = lanes(program % config.groups * config.channels, config)
    whole: tl.constexpr = config.size * config.states
    rates, length = _rates(rate, place, has_state), load_lengths(lengths, row, row < rows, steps)
    shift, scale = tl.load(bias + channel, here, 0.0), tl.load(skip + channel, here, 0.0)
    state_at = row * whole + place
    h = tl.load(h0 + state_at, mask=has_state, other=0.0)
    i = tl.arange(0, CHUNK)
    x, z, raw, b, c = _load(u, gate, step, matrices, i, row, length, steps, rows, channel, here, config)
    for first in range(0, steps, CHUNK):
        tl.store(kept + (first // CHUNK * (rows.to(tl.int64) * whole) + state_at), h, mask=has_state)
        t = first + i
        following = _load(u, gate, step, matrices, t + CHUNK, row, length, steps, rows, channel, here, config)
        at, exists, valid, started = steps_of(t, row, length, starts, steps, rows)
        at = at * config.size + channel[None, :]
        delta = tl.where(valid & here[None, :], softplus(raw + shift[None, :]), 0.0)
        tl.store(step_sizes + at, delta, mask=exists & here[None, :])
        a = tl.exp(of_channels(delta, config.width) * rates[None, :])
        b_wide = of_channels(delta * x, config.width) * of_states(b, config.channels)
        marks = None if starts is None else marks_of(started, a)
        hidden, _ = scan_tile(a, a, b_wide, b_wide, marks, h, h, False)
        h = last_row(hidden, CHUNK)
        y = sum_states(hidden * of_states(c, config.channels), config.width)
        y = tl.where(valid, (y + scale[None, :] * x) * z * sigmoid(z), 0.0)
        tl.store(outputs + at, y, mask=exists & here[None, :])
        x, z, raw, b, c = following
    tl.store(final + state_at, h, mask=has_state)


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_states(
    gate,
    step_sizes,
    matrices,
    rate,
    lengths,
    starts,
    grad_outputs,
    grad_final,
    carried,
    grad_h0,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of the states after the chunks from what follows, `carried` (⌈T / L⌉, B, N, S), and of h0.

    The gradient of h_t is d_t = C_t do_t + a_{t+1} d_{t+1}. What is carried is e_t = a_t d_t, the gradient of h_{t−1}
    from what follows. `grad_outputs` and `grad_final` may be None.
    """
    program = tl.program_id(0).to(tl.int64)
    row = program // config.groups + tl.zeros([1], tl.int64)
    channel, here, place, has_state = lanes(program % config.groups * config.channels, config)
    whole: tl.constexpr = config.size * config.states
    rates, length = _rates(rate, place, has_state), load_lengths(lengths, row, row < rows, steps)
    state_at = row * whole + place
    e = tl.zeros([config.channels * config.width], tl.float32)
    if grad_final is not None:
        e = tl.load(grad_final + state_at, mask=has_state, other=0.0)
    chunks = (steps + CHUNK - 1) // CHUNK
    t = chunks * CHUNK - 1 - tl.arange(0, CHUNK)
    loaded = _load(grad_outputs, gate, step_sizes, matrices, t, row, length, steps, rows, channel, here, config)
    dy, z, delta, c = loaded[0], loaded[1], loaded[2], loaded[4]
    for done in range(0, chunks):
        chunk = chunks - 1 - done
        tl.store(carried + (chunk * (rows.to(tl.int64) * whole) + state_at), e, mask=has_state)
        t = chunk * CHUNK + CHUNK - 1 - tl.arange(0, CHUNK)
        following = _load(
            grad_outputs, gate, step_sizes, matrices, t - CHUNK, row, length, steps, rows, channel, here, config
        )
        started = steps_of(t, row, length, starts, steps, rows)[3]
        a = tl.exp(of_channels(delta, config.width) * rates[None, :])
        d = of_channels(dy * z * sigmoid(z), config.width) * of_states(c, config.channels)
        d = tl.where(started, 0.0, a * d)
        marks = None if starts is None else marks_of(started, a)
        d, _ = scan_tile(a, a, d, d, marks, e, e, False)
        e = last_row(d, CHUNK)
        dy, z, delta, c = following[0], following[1], following[2], following[4]
    tl.store(grad_h0 + state_at, e, mask=has_state)


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_chunks(
    u,
    gate,
    step_sizes,
    matrices,
    rate,
    skip,
    lengths,
    starts,
    kept,
    carried,
    grad_outputs,
    grad_u,
    grad_gate,
    grad_step,
    grad_matrices,
    sums,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of a chunk of a row.

    Those of rate, bias and skip are sums over its steps, (⌈T / L⌉ B, N S + 2 N).
    """
    program = tl.program_id(0).to(tl.int64)
    chunk, row = program // rows, program % rows + tl.zeros([1], tl.int64)
    length = load_lengths(lengths, row, row < rows, steps)
    i = tl.arange(0, CHUNK)
    t = chunk * CHUNK + i
    at, exists, valid, started = steps_of(t, row, length, starts, steps, rows)
    previous = steps_of(tl.where(i > 0, t - 1, -1), row, length, None, steps, rows)
    following = steps_of(tl.where(i < CHUNK - 1, t + 1, -1), row, length, starts, steps, rows)
    b_c, b_before = _matrices(matrices, at, valid, config), _matrices(matrices, previous[0], previous[2], config)
    b, c = of_states(b_c[0], config.channels), of_states(b_c[1], config.channels)
    whole: tl.constexpr = config.size * config.states
    to = sums + program * (whole + 2 * config.size)
    grad_b = tl.zeros([CHUNK, config.channels * config.width], tl.float32)
    grad_c = grad_b
    for first in range(0, config.size, config.channels):
        channel, here, place, has_state = lanes(first, config)
        rates = _rates(rate, place, has_state)
        scale = tl.load(skip + channel, here, 0.0)
        state_at = (chunk * rows + row) * whole + place
        h, e = tl.load(kept + state_at, has_state, 0.0), tl.load(carried + state_at, has_state, 0.0)
        inside, unit = valid & here[None, :], channel[None, :]
        here_at, before_at = at * config.size + unit, previous[0] * config.size + unit
        x, z = tl.load(u + here_at, inside, 0.0), tl.load(gate + here_at, inside, 0.0)
        delta = tl.load(step_sizes + here_at, inside, 0.0)

        # a_t h_{t−1}, the state without what enters
        a = tl.exp(of_channels(delta, config.width) * rates[None, :])
        is_before = previous[2] & here[None, :]
        driven_before = tl.load(step_sizes + before_at, is_before, 0.0) * tl.load(u + before_at, is_before, 0.0)
        entered = of_channels(driven_before, config.width)
        entered *= of_states(b_before[0], config.channels)
        entered = tl.where(started, 0.0, a * entered)
        marks = None if starts is None else marks_of(started, a)
        left, _ = scan_tile(a, a, entered, entered, marks, h, h, False)
        driven = of_channels(delta * x, config.width)
        hidden = left + driven * b

        dy = tl.zeros_like(x)
        if grad_outputs is not None:
            dy = tl.load(grad_outputs + here_at, inside, 0.0)
        opened = sigmoid(z)
        y = sum_states(hidden * c, config.width) + scale[None, :] * x
        do = dy * z * opened
        do_wide = of_channels(do, config.width)
        after_at = following[0] * config.size + unit
        delta_after = tl.load(step_sizes + after_at, following[2] & here[None, :], 0.0)
        a_after = tl.exp(of_channels(delta_after, config.width) * rates[None, :])
        read = do_wide * c
        marks = None if starts is None else marks_of(following[3], a)
        d, _ = scan_back(a_after, a, read, read, marks, e, e, False)

        from_log = d * left  # the gradient of log a_t
        d_driven = sum_states(d * b, config.width)
        d_delta = sum_states(from_log * rates[None, :], config.width) + x * d_driven
        d_step = tl.where(inside, d_delta * -exp_minus_one(-delta), 0.0)  # dΔ / dstep = 1 − exp(−Δ)
        written = exists & here[None, :]
        tl.store(grad_u + here_at, tl.where(inside, delta * d_driven + scale[None, :] * do, 0.0), mask=written)
        tl.store(grad_step + here_at, d_step, mask=written)
        d_gate = dy * y * opened * (1.0 + z * (1.0 - opened))
        tl.store(grad_gate + here_at, tl.where(inside, d_gate, 0.0), mask=written)
        of_rate = tl.sum(tl.where(valid, from_log * of_channels(delta, config.width), 0.0), axis=0)
        tl.store(to + place, rates * of_rate, mask=has_state)
        tl.store(to + whole + channel, tl.sum(d_step, axis=0), mask=here)
        tl.store(to + whole + config.size + channel, tl.sum(do * x, axis=0), mask=here)
        grad_b += d * driven
        grad_c += do_wide * hidden
    state = tl.arange(0, config.width)[None, :]
    to = grad_matrices + (at * (2 * config.states) + state)
    grad_b, grad_c = sum_channels(grad_b, config.width), sum_channels(grad_c, config.width)
    written = exists & (state < config.states)
    tl.store(to, tl.where(valid, grad_b, 0.0), mask=written)
    tl.store(to + config.states, tl.where(valid, grad_c, 0.0), mask=written)
