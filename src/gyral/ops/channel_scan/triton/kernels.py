"""The kernels. Registers carry the states of some channels of a row from a chunk of steps to the next one.

Forward keeps the states before each chunk. Backward has a kernel that carries the gradient of the states from the last
chunk to the first one and does nothing else, and one in which spans of chunks run at once: it computes their states
again. A third one adds the sums of all spans, and gives the gradients of the parameters.

Steps beyond the length of a row have λ = 1 and x = 0, so that the state at the end is that after its last step.
"""

import triton
import triton.language as tl

from gyral.ops.triton.discretization import discretize, multiply, vector_gradients
from gyral.ops.triton.rows import sum_rows
from gyral.ops.triton.scan import last_row, load_pair, scan_tile, store_pair
from gyral.ops.triton.sequences import load_lengths, steps_of
from gyral.ops.triton.states import lanes, marks_of, of_channels, scan_back, sum_states

CHUNK = tl.constexpr(32)  # L, the steps of a tile, and between the states that are kept
SPAN = tl.constexpr(8)  # chunks of a program that runs beside others of its row
ROWS = tl.constexpr(16)  # sums of spans that a program reads at once


@triton.jit
def _parameters(rate, frequency, scale, first, place, here, config: tl.constexpr):
    """Return −e^rate, frequency and log Δ for the states of the channels from `first` on, (K P,), as float64.

    The steps of a long memory add up the error of λ, so that it is only that of its rounding to float32.
    """
    channel = first + tl.arange(0, config.channels * config.width) // config.width
    real = -tl.exp(tl.load(rate + place, mask=here, other=0.0).to(tl.float64))
    imaginary = tl.load(frequency + place, mask=here, other=0.0).to(tl.float64)
    return real, imaginary, tl.load(scale + channel, mask=here, other=0.0).to(tl.float64)


@triton.jit
def _constants(rate, frequency, scale, readout, first, place, here, config: tl.constexpr):
    """Return λ and 2 C ⊙ B̄, real and imaginary parts, (K P,); zeros where there is no state."""
    real, imaginary, log_step = _parameters(rate, frequency, scale, first, place, here, config)
    a, ai, f, fi, _, _ = discretize(real, imaginary, log_step, "zoh")
    c, ci = load_pair(readout + place, config.size * config.states, here, True)
    w, wi = multiply(2.0 * f, 2.0 * fi, c, ci)
    return a.to(tl.float32), ai.to(tl.float32), w.to(tl.float32), wi.to(tl.float32)


@triton.jit
def _load_constants(constants, place, here, config: tl.constexpr):
    """Return the values of `_constants` that `forward_states` has written."""
    whole: tl.constexpr = config.size * config.states
    a, ai = load_pair(constants + place, whole, here, True)
    w, wi = load_pair(constants + 2 * whole + place, whole, here, True)
    return a, ai, w, wi


@triton.jit
def _decays(a, ai, valid):
    """Return λ at the steps (L, 1) that are valid, else 1: (L, K P)."""
    return tl.where(valid, a[None, :], 1.0), tl.where(valid, ai[None, :], 0.0)


@triton.jit
def _load(values, t, row, length, steps, rows, channel, here, config: tl.constexpr):
    """Return values (T, B, N) at the steps t (L,) of a row and some channels, (L, K); zeros if they are None.

    A loop that needs those of a chunk loads those of the next one before it begins, so that it does not wait.
    """
    at, _, valid, _ = steps_of(t, row, length, None, steps, rows)
    at, inside = at * config.size + channel[None, :], valid & here[None, :]
    zeros = tl.zeros(inside.shape, tl.float32)
    return zeros if values is None else tl.load(values + at, mask=inside, other=0.0)


@triton.jit(do_not_specialize=["steps", "rows"])
def forward_states(
    inputs,
    rate,
    frequency,
    scale,
    readout,
    skip,
    h0,
    lengths,
    starts,
    outputs,
    final,
    kept,
    constants,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the outputs (T, B, N), the last states (B, 2NP), and those before the chunks, `kept` (⌈T / L⌉, B, 2NP).

    The programs of the first row write λ and 2 C ⊙ B̄, the `constants` (4, N, P).
    """
    whole: tl.constexpr = config.size * config.states
    program = tl.program_id(0).to(tl.int64)
    row = program // config.groups + tl.zeros([1], tl.int64)
    first = program % config.groups * config.channels
    channel, here, place, has_state = lanes(first, config)
    a, ai, w, wi = _constants(rate, frequency, scale, readout, first, place, has_state, config)
    is_first = has_state & (row == 0)
    store_pair(constants + place, whole, a, ai, is_first, True)
    store_pair(constants + 2 * whole + place, whole, w, wi, is_first, True)
    length, factor = load_lengths(lengths, row, row < rows, steps), tl.load(skip + channel, mask=here, other=0.0)
    state_at = row * (2 * whole) + place
    h, hi = load_pair(h0 + state_at, whole, has_state, True)
    i = tl.arange(0, CHUNK)
    x = _load(inputs, i, row, length, steps, rows, channel, here, config)
    for begin in range(0, steps, CHUNK):
        store_pair(
            kept + (begin // CHUNK * (rows.to(tl.int64) * (2 * whole)) + state_at), whole, h, hi, has_state, True
        )
        t = begin + i
        next_x = _load(inputs, t + CHUNK, row, length, steps, rows, channel, here, config)
        at, exists, valid, started = steps_of(t, row, length, starts, steps, rows)
        entered = of_channels(x, config.width)
        decay, decayi = _decays(a, ai, valid)
        marks = None if starts is None else marks_of(started, decay)
        hidden, hiddeni = scan_tile(decay, decayi, entered, tl.zeros_like(entered), marks, h, hi, True)
        h, hi = last_row(hidden, CHUNK), last_row(hiddeni, CHUNK)
        y = sum_states(w[None, :] * hidden - wi[None, :] * hiddeni, config.width) + factor[None, :] * x
        tl.store(outputs + (at * config.size + channel[None, :]), tl.where(valid, y, 0.0), mask=exists & here[None, :])
        x = next_x
    store_pair(final + state_at, whole, h, hi, has_state, True)


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_states(
    constants,
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
    """Write the gradients of the states after the chunks from what follows, `carried` (⌈T / L⌉, B, 2NP), and of h0.

    The gradient of h_t is d_t = conj(w) dy_t + conj(λ) d_{t+1}. What is carried is e_t = conj(λ) d_t, the gradient of
    h_{t−1} from what follows. `grad_outputs` and `grad_final` may be None.
    """
    whole: tl.constexpr = config.size * config.states
    program = tl.program_id(0).to(tl.int64)
    row = program // config.groups + tl.zeros([1], tl.int64)
    first = program % config.groups * config.channels
    channel, here, place, has_state = lanes(first, config)
    a, ai, w, wi = _load_constants(constants, place, has_state, config)
    both, bothi = multiply(a, -ai, w, -wi)
    length = load_lengths(lengths, row, row < rows, steps)
    state_at = row * (2 * whole) + place
    e = tl.zeros([config.channels * config.width], tl.float32)
    ei = e
    if grad_final is not None:
        e, ei = load_pair(grad_final + state_at, whole, has_state, True)
    chunks = (steps + CHUNK - 1) // CHUNK
    t = chunks * CHUNK - 1 - tl.arange(0, CHUNK)
    dy = _load(grad_outputs, t, row, length, steps, rows, channel, here, config)
    for done in range(0, chunks):
        chunk = chunks - 1 - done
        store_pair(carried + (chunk * (rows.to(tl.int64) * (2 * whole)) + state_at), whole, e, ei, has_state, True)
        t = chunk * CHUNK + CHUNK - 1 - tl.arange(0, CHUNK)
        next_dy = _load(grad_outputs, t - CHUNK, row, length, steps, rows, channel, here, config)
        _, _, valid, started = steps_of(t, row, length, starts, steps, rows)
        decay, decayi = _decays(a, -ai, valid)
        d = tl.where(started, 0.0, of_channels(dy, config.width))
        marks = None if starts is None else marks_of(started, decay)
        d, di = scan_tile(decay, decayi, d * both[None, :], d * bothi[None, :], marks, e, ei, True)
        e, ei = last_row(d, CHUNK), last_row(di, CHUNK)
        dy = next_dy
    store_pair(grad_h0 + state_at, whole, e, ei, has_state, True)


@triton.jit(do_not_specialize=["steps", "rows"])
def backward_chunks(
    inputs,
    constants,
    skip,
    lengths,
    starts,
    kept,
    carried,
    grad_outputs,
    grad_inputs,
    sums,
    steps,
    rows,
    config: tl.constexpr,
):
    """Write the gradients of the inputs for a span of chunks of some channels of a row.

    Those of λ, 2 C ⊙ B̄ and D are sums over its steps, (⌈T / (8 L)⌉ B, 4NP + N).
    """
    whole: tl.constexpr = config.size * config.states
    program = tl.program_id(0).to(tl.int64)
    place_of_sums = program // config.groups
    row, span = place_of_sums % rows + tl.zeros([1], tl.int64), (place_of_sums // rows).to(tl.int32)
    first = program % config.groups * config.channels
    channel, here, place, has_state = lanes(first, config)
    a, ai, w, wi = _load_constants(constants, place, has_state, config)
    length, factor = load_lengths(lengths, row, row < rows, steps), tl.load(skip + channel, mask=here, other=0.0)
    grad_a = tl.zeros([config.channels * config.width], tl.float32)
    grad_ai, grad_w, grad_wi, grad_skip = grad_a, grad_a, grad_a, tl.zeros_like(factor)
    i = tl.arange(0, CHUNK)
    chunks = (steps + CHUNK - 1) // CHUNK
    for chunk in range(span * SPAN, tl.minimum(chunks, (span + 1) * SPAN)):
        state_at = (chunk * rows.to(tl.int64) + row) * (2 * whole) + place
        t = chunk * CHUNK + i
        at, exists, valid, started = steps_of(t, row, length, starts, steps, rows)
        previous = steps_of(tl.where(i > 0, t - 1, -1), row, length, None, steps, rows)
        following = steps_of(tl.where(i < CHUNK - 1, t + 1, -1), row, length, starts, steps, rows)

        # h_{t−1}, which the step finds
        h, hi = load_pair(kept + state_at, whole, has_state, True)
        decay, decayi = _decays(a, ai, previous[2])
        unit = channel[None, :]
        before_x = tl.load(inputs + (previous[0] * config.size + unit), mask=previous[2] & here[None, :], other=0.0)
        entered = tl.where(started, 0.0, of_channels(before_x, config.width))
        marks = None if starts is None else marks_of(started, decay)
        before, beforei = scan_tile(decay, decayi, entered, tl.zeros_like(entered), marks, h, hi, True)

        at, inside = at * config.size + unit, valid & here[None, :]
        x = tl.load(inputs + at, mask=inside, other=0.0)
        dy = tl.zeros_like(x)
        if grad_outputs is not None:
            dy = tl.load(grad_outputs + at, mask=inside, other=0.0)
        hidden, hiddeni = multiply(a[None, :], ai[None, :], before, beforei)
        hidden += of_channels(x, config.width)
        of_y = of_channels(dy, config.width)
        grad_w += tl.sum(tl.where(valid, of_y * hidden, 0.0), axis=0)
        grad_wi -= tl.sum(tl.where(valid, of_y * hiddeni, 0.0), axis=0)

        e, ei = load_pair(carried + state_at, whole, has_state, True)
        decay, decayi = _decays(a, -ai, following[2])
        marks = None if starts is None else marks_of(following[3], decay)
        d, di = scan_back(decay, decayi, of_y * w[None, :], -of_y * wi[None, :], marks, e, ei, True)
        grad_a += tl.sum(tl.where(valid, d * before + di * beforei, 0.0), axis=0)
        grad_ai += tl.sum(tl.where(valid, di * before - d * beforei, 0.0), axis=0)
        grad_skip += tl.sum(dy * x, axis=0)
        grad_x = sum_states(d, config.width) + factor[None, :] * dy
        tl.store(grad_inputs + at, tl.where(inside, grad_x, 0.0), mask=exists & here[None, :])
    to = sums + place_of_sums * (4 * whole + config.size)
    store_pair(to + place, whole, grad_a, grad_ai, has_state, True)
    store_pair(to + 2 * whole + place, whole, grad_w, grad_wi, has_state, True)
    tl.store(to + 4 * whole + channel, grad_skip, mask=here)


@triton.jit(do_not_specialize=["spans"])
def backward_parameters(
    rate,
    frequency,
    scale,
    readout,
    sums,
    grad_rate,
    grad_frequency,
    grad_scale,
    grad_readout,
    grad_skip,
    spans,
    config: tl.constexpr,
):
    """Write the gradients of the parameters, given the sums over steps of some spans, (spans, 4NP + N)."""
    whole: tl.constexpr = config.size * config.states
    columns: tl.constexpr = 4 * whole + config.size
    first = tl.program_id(0).to(tl.int64) * config.channels
    channel, here, place, has_state = lanes(first, config)
    da = sum_rows(sums, columns, place, has_state, spans, ROWS)
    dai = sum_rows(sums, columns, whole + place, has_state, spans, ROWS)
    dw = sum_rows(sums, columns, 2 * whole + place, has_state, spans, ROWS)
    dwi = sum_rows(sums, columns, 3 * whole + place, has_state, spans, ROWS)
    tl.store(grad_skip + channel, sum_rows(sums, columns, 4 * whole + channel, here, spans, ROWS), mask=here)
    real, imaginary, log_step = _parameters(rate, frequency, scale, first, place, has_state, config)
    _, _, f, fi, _, _ = discretize(real, imaginary, log_step, "zoh")
    c, ci = load_pair(readout + place, whole, has_state, True)
    d, di = multiply(2.0 * f, -2.0 * fi, dw, dwi)
    store_pair(grad_readout + place, whole, d, di, has_state, True)
    df, dfi = multiply(2.0 * c, -2.0 * ci, dw, dwi)
    d, di, of_step = vector_gradients(real, imaginary, log_step, da, dai, df, dfi, "zoh")
    tl.store(grad_rate + place, real * d, mask=has_state)
    tl.store(grad_frequency + place, di, mask=has_state)
    of_step = tl.reshape(tl.where(has_state, of_step, 0.0), (config.channels, config.width))
    tl.store(grad_scale + channel, tl.sum(of_step, axis=1), mask=here)
