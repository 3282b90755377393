"""RUM's recurrence as Triton kernels: the whole time loop of a block of sequences in one program.

λ = 0: a program owns a block of batch rows, λ = 1: one sequence and its associative memory. Programs never wait for one
another. A step's row-wise part sees whole rows, so that its sums over the hidden units are plain reductions; only the
recurrent products and the memory are walked in tiles. Where one phase of a step reads from global memory what other
threads of the program wrote in the phase before, a barrier stands between them.

The rotation is I + [u w] C [u w]ᵀ, u = ε̃/‖ε̃‖, v = τ/‖τ‖, c = u·v, with a 2 × 2 matrix C:

* c ≥ −½: w = v, s = 1/(1 + c), C = [[−s, −s], [2 − s, −s]], which needs no component of v orthogonal to u;
* c < −½: w = r/‖r‖, r the part of v orthogonal to u, C = [[c − 1, −‖r‖], [‖r‖, c − 1]]: `gyral.ops.rotation` with a unit
  vector for r, so that nothing grows towards π but the gradient itself.

For λ = 1 the backward pass runs the memory backwards, R_{t−1} = R_t Rotation(τ_t, ε̃_t), and takes up the exact one
every `CHECKPOINT_EVERY` steps, so that rounding does not pile up over long sequences.

All arithmetic is float32 but that of the recurrent products for λ = 0, whose factors have the type of the weights.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gyral.ops.kernels import KernelUnavailableError
from gyral.ops.rum.sequence import Gradients, Options, Problem, Solution

DTYPES: tuple[torch.dtype, ...] = (torch.float32,)
PRODUCTS: tuple[torch.dtype, ...] = (torch.bfloat16, torch.float16)
CHECKPOINT_EVERY = 1024  # steps of λ = 1 between two saved memories
BLOCK_BATCH = 16  # rows of a program for λ = 0: the fewest that tl.dot takes
# up to so many hidden units the weights stay on chip; without tensor cores every thread needs many of them in registers
RESIDENT_SIZE = {"tf32": 128, "ieee": 64}
TILE = 4096  # elements of a tile of weights or memory, and of a group of rows: registers hold several such

TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
LARGEST = tl.constexpr(torch.finfo(torch.float32).max)
SMALLEST_SINE = tl.constexpr(8 * torch.finfo(torch.float32).eps)  # below it two vectors are opposite
EPSILON = tl.constexpr(1e-5)  # of the layer normalizations


class Formulas(NamedTuple):
    """What a kernel is compiled for: sizes N, (G − 1) N, G N of the hidden state, the recurrent parts, all parts."""

    size: int
    recurrent: int
    width: int
    gated: bool
    normalized: bool
    time_normalized: bool
    zoneout: str  # "none", "mask" or "probability"
    activation: str


class Step(NamedTuple):
    """In the kernels: pointers to one step's (B, …) slices, what all steps share, and the rows (K) that are treated.

    `scales` (B, 2) are the reciprocal standard deviations of target and gate, `norms` and this program's `grad_norms`
    (3, 2, N), `live` (K) says which rows have not ended.
    """

    parts: Any
    scales: Any
    keep: Any
    norms: Any
    grad_norms: Any
    keep_probability: Any
    eta: Any
    rows: Any
    columns: Any
    live: Any


class Turn(NamedTuple):
    """In the kernels: a rotation I + [u w] C [u w]ᵀ; vectors (K, N), scalars (K, 1), and what its gradient needs."""

    u: Any
    v: Any
    w: Any
    c11: Any
    c12: Any
    c21: Any
    c22: Any
    overlap: Any
    sine: Any
    careful: Any
    opposite: Any
    inverse_embedded: Any
    inverse_target: Any
    cosine: Any


# ---------------------------------------------------------------- row-wise functions: rows (K, N), scalars (K, 1)


@triton.jit
def _dot(a, b):
    """Inner products (K, 1) of rows."""
    return tl.sum(a * b, axis=1, keep_dims=True)


@triton.jit
def _inverse_norm(x):
    """1/‖x‖, and 0 where ‖x‖² is below the smallest normal number or overflows."""
    squared = _dot(x, x)
    nonzero = (squared > TINY) & (squared <= LARGEST)
    # rounded exactly: what a unit vector lacks in length the product of many rotations lacks in orthogonality
    root = tl.sqrt_rn(tl.where(nonzero, squared, 1.0))
    return tl.where(nonzero, tl.div_rn(tl.full(root.shape, 1.0, tl.float32), root), 0.0)


@triton.jit
def _sigmoid(x):
    decay = tl.exp(-tl.abs(x))  # never overflows
    return tl.where(x >= 0, 1.0, decay) / (1.0 + decay)


@triton.jit
def _tanh(x):
    size = tl.abs(x)
    decay = tl.exp(-2.0 * size)
    far = (1.0 - decay) / (1.0 + decay)
    # near 0 that cancels; the polynomial is that of Cephes' tanhf
    square = tl.where(size < 0.625, x * x, 0.0)
    tail = (-5.70498872745e-3 * square + 2.06390887954e-2) * square - 5.37397155531e-2
    tail = (tail * square + 1.33314422036e-1) * square - 3.33332819422e-1
    return tl.where(size < 0.625, x + x * (square * tail), tl.where(x < 0, -far, far))


@triton.jit
def _activate(x, formulas: tl.constexpr):
    if formulas.activation == "relu":
        result = tl.maximum(x, 0.0)
    elif formulas.activation == "tanh":
        result = _tanh(x)
    elif formulas.activation == "sigmoid":
        result = _sigmoid(x)
    else:
        result = x / (1.0 + tl.abs(x))
    return result


@triton.jit
def _slope(x, activated, formulas: tl.constexpr):
    """f′(x), `activated` being f(x)."""
    if formulas.activation == "relu":
        result = tl.where(x > 0, 1.0, 0.0)
    elif formulas.activation == "tanh":
        result = 1.0 - activated * activated
    elif formulas.activation == "sigmoid":
        result = activated * (1.0 - activated)
    else:
        reciprocal = 1.0 / (1.0 + tl.abs(x))
        result = reciprocal * reciprocal
    return result


@triton.jit
def _normalize(x, columns, size: tl.constexpr):
    """x (zero beyond `size`) without mean and of variance 1, and the reciprocal of its standard deviation."""
    mean = tl.sum(x, axis=1, keep_dims=True) / size
    centred = tl.where((columns < size)[None, :], x - mean, 0.0)
    scale = 1.0 / tl.sqrt_rn(_dot(centred, centred) / size + EPSILON)
    return centred * scale, scale


@triton.jit
def _scale_and_shift(normal, norms, which: tl.constexpr, columns, size: tl.constexpr):
    """Gain and bias of the layer normalization of target (0), gate (1) or candidate (2)."""
    inside = columns < size
    gain = tl.load(norms + 2 * which * size + columns, mask=inside, other=0.0)
    bias = tl.load(norms + (2 * which + 1) * size + columns, mask=inside, other=0.0)
    return normal * gain[None, :] + bias[None, :]


@triton.jit
def _normalize_backward(d, normal, scale, step, which: tl.constexpr, size: tl.constexpr):
    """Gradient of what was normalized; adds this program's gradients of gain and bias to `step.grad_norms`."""
    inside = step.columns < size
    at = step.grad_norms + 2 * which * size + step.columns
    tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(d * normal, axis=0), mask=inside)
    tl.store(at + size, tl.load(at + size, mask=inside, other=0.0) + tl.sum(d, axis=0), mask=inside)
    tl.debug_barrier()  # other threads may load these sums next time

    d = d * tl.load(step.norms + 2 * which * size + step.columns, mask=inside, other=0.0)[None, :]
    mean = tl.sum(d, axis=1, keep_dims=True) / size
    along = _dot(d, normal) / size
    return tl.where(inside[None, :], scale * (d - mean - normal * along), 0.0)


@triton.jit
def _turn(target, embedded, columns, size: tl.constexpr):
    """The rotation from `embedded` to `target` (K, N)."""
    inverse_embedded = _inverse_norm(embedded)
    inverse_target = _inverse_norm(target)
    both = (inverse_embedded > 0) & (inverse_target > 0)
    inverse_embedded = tl.where(both, inverse_embedded, 0.0)
    inverse_target = tl.where(both, inverse_target, 0.0)
    u = embedded * inverse_embedded
    v = target * inverse_target
    c = _dot(u, v)

    careful = c < -0.5
    opposite = c < -2.0  # nowhere yet
    w = v
    sine = tl.full(c.shape, 1.0, tl.float32)
    if tl.min(c) < -0.5:
        r = v - c * u
        r -= _dot(u, r) * u
        sine = tl.sqrt_rn(_dot(r, r))
        opposite = careful & (sine < SMALLEST_SINE)
        # no plane is defined: take that of the axis of u's smallest coordinate, orthogonalized
        smallest = tl.argmin(tl.where((columns < size)[None, :], tl.abs(u), float("inf")), axis=1, keep_dims=True)
        axis = tl.where(columns[None, :] == smallest, 1.0, 0.0)
        axis -= _dot(axis, u) * u
        r = tl.where(opposite, axis, r)
        w = tl.where(careful, r * _inverse_norm(r), v)
        sine = tl.where(opposite, SMALLEST_SINE, tl.where(careful, sine, 1.0))
    s = 1.0 / (1.0 + tl.where(careful, 0.0, c))
    c11 = tl.where(careful, c - 1.0, -s)
    c12 = tl.where(careful, -sine, -s)
    c21 = tl.where(careful, sine, 2.0 - s)
    c22 = c11
    cosine = tl.where(both, c, 1.0)
    return Turn(u, v, w, c11, c12, c21, c22, c, sine, careful, opposite, inverse_embedded, inverse_target, cosine)


@triton.jit
def _turn_backward(du, dw, dc11, dc12, dc21, dc22, turn):
    """Gradients of `embedded` and `target` from those of u, w and C."""
    u, v, w, c, sine = turn.u, turn.v, turn.w, turn.overlap, turn.sine
    dc = turn.c22 * turn.c22 * (dc11 + dc12 + dc21 + dc22)
    du_all = du + dc * v
    dv = dw + dc * u
    if tl.min(c) < -0.5:
        # within their plane u and v move the angle only, and out of it the plane; where they are opposite, u alone does
        dangle = c * (dc21 - dc12) - sine * (dc11 + dc22)
        du_out = du - _dot(w, du) * w
        dv_out = (dw - _dot(u, dw) * u - _dot(w, dw) * w) / sine
        du_careful = tl.where(turn.opposite, du, du_out - c * dv_out - dangle * w)
        dv_careful = tl.where(turn.opposite, 0.0, dv_out + dangle * (c * w - sine * u))
        du_all = tl.where(turn.careful, du_careful, du_all)
        dv = tl.where(turn.careful, dv_careful, dv)
    dembedded = turn.inverse_embedded * (du_all - _dot(u, du_all) * u)
    return dembedded, turn.inverse_target * (dv - _dot(v, dv) * v)


@triton.jit
def _settle(target, gate, step, formulas: tl.constexpr):
    """Return memory target and update gate from their sums, and the embedded input; save what `_recall` needs."""
    size: tl.constexpr = formulas.size
    live, columns = step.live[:, None], step.columns
    valid = live & (columns < size)[None, :]
    at = step.parts + step.rows[:, None] * formulas.width + columns[None, :]
    if formulas.normalized:
        target, scale = _normalize(target, columns, size)
        tl.store(step.scales + 2 * step.rows[:, None], scale, mask=live)
    tl.store(at, target, mask=valid)
    if formulas.normalized:
        target = _scale_and_shift(target, step.norms, 0, columns, size)
    if formulas.gated:
        if formulas.normalized:
            gate, scale = _normalize(gate, columns, size)
            tl.store(step.scales + 2 * step.rows[:, None] + 1, scale, mask=live)
            tl.store(at + size, gate, mask=valid)
            gate = _sigmoid(_scale_and_shift(gate, step.norms, 1, columns, size))
        else:
            gate = _sigmoid(gate)
            tl.store(at + size, gate, mask=valid)
    return target, gate, tl.load(at + formulas.recurrent, mask=valid, other=0.0)


@triton.jit
def _recall(step, formulas: tl.constexpr):
    """Return what is saved of target and gate, memory target and update gate themselves, and the embedded input."""
    size: tl.constexpr = formulas.size
    valid = step.live[:, None] & (step.columns < size)[None, :]
    at = step.parts + step.rows[:, None] * formulas.width + step.columns[None, :]
    saved_target = tl.load(at, mask=valid, other=0.0)
    target = saved_target
    if formulas.normalized:
        target = _scale_and_shift(saved_target, step.norms, 0, step.columns, size)
    saved_gate = saved_target  # any tensor, where there is no gate
    gate = saved_target
    if formulas.gated:
        saved_gate = tl.load(at + size, mask=valid, other=0.0)
        gate = saved_gate
        if formulas.normalized:
            gate = _sigmoid(_scale_and_shift(saved_gate, step.norms, 1, step.columns, size))
    return saved_target, saved_gate, target, gate, tl.load(at + formulas.recurrent, mask=valid, other=0.0)


@triton.jit
def _kept(step, formulas: tl.constexpr):
    """How much of h_{t−1} zoneout keeps."""
    at = step.rows[:, None] * formulas.size + step.columns[None, :]
    if formulas.zoneout == "mask":
        valid = step.live[:, None] & (step.columns < formulas.size)[None, :]
        kept = tl.load(step.keep + at, mask=valid, other=0.0)
    else:
        kept = tl.full(at.shape, 1.0, tl.float32) * step.keep_probability
    return kept


@triton.jit
def _new_hidden(candidate, gate, h, step, formulas: tl.constexpr):
    """Return h_t from ε̃_t + R_t h_{t−1}, the update gate and h_{t−1}."""
    if formulas.normalized:
        candidate, _ = _normalize(candidate, step.columns, formulas.size)
        candidate = _scale_and_shift(candidate, step.norms, 2, step.columns, formulas.size)
    new = _activate(candidate, formulas)
    if formulas.gated:
        new += gate * (h - new)
    new = tl.where((step.columns < formulas.size)[None, :], new, 0.0)
    if formulas.time_normalized:
        new *= step.eta * _inverse_norm(new)
    if formulas.zoneout != "none":
        new += _kept(step, formulas) * (h - new)
    return new


@triton.jit
def _new_hidden_backward(d, candidate, gate, saved_gate, h, step, formulas: tl.constexpr):
    """Gradients of ε̃_t + R_t h_{t−1}, of the update gate's sum and of h_{t−1} but through R_t, from that of h_t."""
    size: tl.constexpr = formulas.size
    normal = candidate
    scale = tl.zeros([d.shape[0], 1], tl.float32)
    if formulas.normalized:
        normal, scale = _normalize(candidate, step.columns, size)
        candidate = _scale_and_shift(normal, step.norms, 2, step.columns, size)
    activated = _activate(candidate, formulas)

    dh = tl.zeros(d.shape, tl.float32)
    if formulas.zoneout != "none":
        dh = d * _kept(step, formulas)
        d -= dh
    if formulas.time_normalized:
        new = activated
        if formulas.gated:
            new += gate * (h - activated)
        new = tl.where((step.columns < size)[None, :], new, 0.0)
        inverse = _inverse_norm(new)
        new *= inverse
        d = step.eta * inverse * (d - _dot(new, d) * new)
    dgate = d
    if formulas.gated:
        dh += d * gate
        dgate = d * (h - activated) * gate * (1.0 - gate)
        d -= d * gate
        if formulas.normalized:
            gate_scale = tl.load(step.scales + 2 * step.rows[:, None] + 1, mask=step.live[:, None], other=0.0)
            dgate = _normalize_backward(dgate, saved_gate, gate_scale, step, 1, size)
    d *= _slope(candidate, activated, formulas)
    if formulas.normalized:
        d = _normalize_backward(d, normal, scale, step, 2, size)
    return d, dgate, dh


@triton.jit
def _target_backward(dtarget, saved_target, step, formulas: tl.constexpr):
    """Gradient of the target's sum from that of the target."""
    if formulas.normalized:
        scale = tl.load(step.scales + 2 * step.rows[:, None], mask=step.live[:, None], other=0.0)
        dtarget = _normalize_backward(dtarget, saved_target, scale, step, 0, formulas.size)
    return dtarget


# ---------------------------------------------------------------- λ = 0


@triton.jit
def _advance(target, gate, h, cosines, step, formulas: tl.constexpr):
    """Return h_t (K, N) from the sums of target and gate and h_{t−1}."""
    target, gate, embedded = _settle(target, gate, step, formulas)
    turn = _turn(target, embedded, step.columns, formulas.size)
    tl.store(cosines + step.rows[:, None], turn.cosine, mask=step.live[:, None])
    alpha, beta = _dot(turn.u, h), _dot(turn.w, h)
    rotated = h + (turn.c11 * alpha + turn.c12 * beta) * turn.u + (turn.c21 * alpha + turn.c22 * beta) * turn.w
    return _new_hidden(embedded + rotated, gate, h, step, formulas)


@triton.jit
def _retreat(d, h, step, formulas: tl.constexpr):
    """Return the gradients of target's and gate's sum, of the embedded input, and of h_{t−1} but through the sums."""
    saved_target, saved_gate, target, gate, embedded = _recall(step, formulas)
    turn = _turn(target, embedded, step.columns, formulas.size)
    u, w = turn.u, turn.w
    alpha, beta = _dot(u, h), _dot(w, h)
    along_u, along_w = turn.c11 * alpha + turn.c12 * beta, turn.c21 * alpha + turn.c22 * beta
    rotated = h + along_u * u + along_w * w
    dy, dgate, dh = _new_hidden_backward(d, embedded + rotated, gate, saved_gate, h, step, formulas)

    p, q = _dot(u, dy), _dot(w, dy)
    dalpha, dbeta = turn.c11 * p + turn.c21 * q, turn.c12 * p + turn.c22 * q
    du, dw = along_u * dy + dalpha * h, along_w * dy + dbeta * h
    dembedded, dtarget = _turn_backward(du, dw, alpha * p, beta * p, alpha * q, beta * q, turn)
    dtarget = _target_backward(dtarget, saved_target, step, formulas)
    return dtarget, dgate, dembedded + dy, dh + dy + dalpha * u + dbeta * w


@triton.jit
def _resident_weights(weight, along_out, along_in, formulas: tl.constexpr):
    """Both recurrent weights whole, output units along `along_out`, input units along `along_in`."""
    size: tl.constexpr = formulas.size
    inside = (along_out < size) & (along_in < size)
    at = weight + along_out * size + along_in
    target_weight = tl.load(at, mask=inside, other=0.0)
    gate_weight = target_weight
    if formulas.gated:
        gate_weight = tl.load(at + size * size, mask=inside, other=0.0)
    return target_weight, gate_weight


@triton.jit(do_not_specialize=["steps", "batch"])
def _forward_rows(
    parts,
    weight,
    hidden,
    norms,
    keep,
    lengths,
    outputs,
    final,
    cosines,
    scales,
    steps,
    batch,
    keep_probability,
    eta,
    formulas: tl.constexpr,
    precision: tl.constexpr,
    resident: tl.constexpr,
    block_batch: tl.constexpr,
    block_rows: tl.constexpr,
    block_size: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
):
    size: tl.constexpr = formulas.size
    width: tl.constexpr = formulas.width
    recurrent: tl.constexpr = formulas.recurrent
    first = tl.program_id(0).to(tl.int64) * block_batch
    rows = first + tl.arange(0, block_batch)
    columns = tl.arange(0, block_size)
    inside = (columns < size)[None, :]
    length = tl.load(lengths + rows, mask=rows < batch, other=0)
    if resident:
        h = tl.load(hidden + rows[:, None] * size + columns[None, :], (rows < batch)[:, None] & inside, 0.0)
        target_weight, gate_weight = _resident_weights(weight, columns[None, :], columns[:, None], formulas)

    for t in range(steps):
        moment = tl.cast(t, tl.int64) * batch
        parts_t, outputs_t = parts + moment * width, outputs + moment * size
        scales_t, keep_t = scales + moment * 2, keep + moment * size
        if resident:
            live = t < length
            step = Step(parts_t, scales_t, keep_t, norms, norms, keep_probability, eta, rows, columns, live)
            valid = live[:, None] & inside
            at = parts_t + rows[:, None] * width + columns[None, :]
            factor = h.to(weight.dtype.element_ty)
            target = tl.load(at, mask=valid, other=0.0)
            target = tl.dot(factor, target_weight, target, input_precision=precision)
            gate = target
            if formulas.gated:
                gate = tl.load(at + size, mask=valid, other=0.0)
                gate = tl.dot(factor, gate_weight, gate, input_precision=precision)
            h = _advance(target, gate, h, cosines + moment, step, formulas)
            here = rows[:, None] * size + columns[None, :]
            tl.store(outputs_t + here, tl.where(valid, h, 0.0), mask=(rows < batch)[:, None] & inside)
            tl.store(final + here, h, mask=(t + 1 == length)[:, None] & inside)
        else:
            # beyond a sequence's length nobody needs its state, so that the zeros put out there may be read
            previous = hidden
            if t > 0:
                previous = outputs + (moment - batch) * size
            for start in range(0, recurrent, block_out):
                out = start + tl.arange(0, block_out)
                at = parts_t + rows[:, None] * width + out[None, :]
                valid = (t < length)[:, None] & (out < recurrent)[None, :]
                total = tl.load(at, mask=valid, other=0.0)
                for begin in range(0, size, block_in):
                    unit = begin + tl.arange(0, block_in)
                    from_at = previous + rows[:, None] * size + unit[None, :]
                    factor = tl.load(from_at, mask=(rows < batch)[:, None] & (unit < size)[None, :], other=0.0)
                    across_at = weight + out[None, :] * size + unit[:, None]
                    across = tl.load(across_at, (unit < size)[:, None] & (out < recurrent)[None, :], 0.0)
                    total = tl.dot(factor.to(weight.dtype.element_ty), across, total, input_precision=precision)
                tl.store(at, total, mask=valid)
            tl.debug_barrier()
            for offset in range(0, block_batch, block_rows):
                some = first + offset + tl.arange(0, block_rows)
                ends = tl.load(lengths + some, mask=some < batch, other=0)
                live = t < ends
                step = Step(parts_t, scales_t, keep_t, norms, norms, keep_probability, eta, some, columns, live)
                valid = live[:, None] & inside
                at = parts_t + some[:, None] * width + columns[None, :]
                target = tl.load(at, mask=valid, other=0.0)
                gate = target
                if formulas.gated:
                    gate = tl.load(at + size, mask=valid, other=0.0)
                here = some[:, None] * size + columns[None, :]
                old = tl.load(previous + here, mask=valid, other=0.0)
                new = _advance(target, gate, old, cosines + moment, step, formulas)
                tl.store(outputs_t + here, tl.where(valid, new, 0.0), mask=(some < batch)[:, None] & inside)
                tl.store(final + here, new, mask=(t + 1 == ends)[:, None] & inside)
            tl.debug_barrier()


@triton.jit(do_not_specialize=["steps", "batch"])
def _backward_rows(
    parts,
    weight,
    hidden,
    norms,
    keep,
    lengths,
    outputs,
    scales,
    grad_outputs,
    grad_hidden,
    grad_norms,
    steps,
    batch,
    keep_probability,
    eta,
    formulas: tl.constexpr,
    precision: tl.constexpr,
    resident: tl.constexpr,
    block_batch: tl.constexpr,
    block_rows: tl.constexpr,
    block_size: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
):
    """`grad_hidden` holds the gradient of h_t as t goes back, `grad_norms` (programs, 3, 2, N) starts as zeros."""
    size: tl.constexpr = formulas.size
    width: tl.constexpr = formulas.width
    recurrent: tl.constexpr = formulas.recurrent
    first = tl.program_id(0).to(tl.int64) * block_batch
    grad_norms += tl.program_id(0) * (6 * size)
    rows = first + tl.arange(0, block_batch)
    columns = tl.arange(0, block_size)
    inside = (columns < size)[None, :]
    if resident:
        target_weight, gate_weight = _resident_weights(weight, columns[:, None], columns[None, :], formulas)

    for back in range(steps):
        t = steps - 1 - back
        moment = tl.cast(t, tl.int64) * batch
        parts_t, grad_outputs_t = parts + moment * width, grad_outputs + moment * size
        scales_t, keep_t = scales + moment * 2, keep + moment * size
        previous = hidden
        if t > 0:
            previous = outputs + (moment - batch) * size
        for offset in range(0, block_batch, block_rows):
            some = first + offset + tl.arange(0, block_rows)
            live = t < tl.load(lengths + some, mask=some < batch, other=0)
            step = Step(parts_t, scales_t, keep_t, norms, grad_norms, keep_probability, eta, some, columns, live)
            known = (some < batch)[:, None] & inside
            valid = live[:, None] & inside
            here = some[:, None] * size + columns[None, :]
            later = tl.load(grad_hidden + here, mask=known, other=0.0)
            d = tl.where(valid, later + tl.load(grad_outputs_t + here, mask=valid, other=0.0), 0.0)
            old = tl.load(previous + here, mask=valid, other=0.0)
            dtarget, dgate, dembedded, dh = _retreat(d, old, step, formulas)
            dtarget = tl.where(valid, dtarget, 0.0)
            dgate = tl.where(valid, dgate, 0.0)
            dh = tl.where(valid, dh, later)
            at = parts_t + some[:, None] * width + columns[None, :]
            tl.store(at, dtarget, mask=known)
            if formulas.gated:
                tl.store(at + size, dgate, mask=known)
            tl.store(at + recurrent, tl.where(valid, dembedded, 0.0), mask=known)
            if resident:
                dh = tl.dot(dtarget.to(weight.dtype.element_ty), target_weight, dh, input_precision=precision)
                if formulas.gated:
                    dh = tl.dot(dgate.to(weight.dtype.element_ty), gate_weight, dh, input_precision=precision)
            tl.store(grad_hidden + here, dh, mask=known)
        tl.debug_barrier()
        if not resident:
            for start in range(0, size, block_out):
                out = start + tl.arange(0, block_out)
                at = grad_hidden + rows[:, None] * size + out[None, :]
                known = (rows < batch)[:, None] & (out < size)[None, :]
                total = tl.load(at, mask=known, other=0.0)
                for begin in range(0, recurrent, block_in):
                    unit = begin + tl.arange(0, block_in)
                    from_at = parts_t + rows[:, None] * width + unit[None, :]
                    factor = tl.load(from_at, mask=(rows < batch)[:, None] & (unit < recurrent)[None, :], other=0.0)
                    along_at = weight + unit[:, None] * size + out[None, :]
                    along = tl.load(along_at, (unit < recurrent)[:, None] & (out < size)[None, :], 0.0)
                    total = tl.dot(factor.to(weight.dtype.element_ty), along, total, input_precision=precision)
                tl.store(at, total, mask=known)
            tl.debug_barrier()


# ---------------------------------------------------------------- λ = 1


@triton.jit(do_not_specialize=["steps", "batch"])
def _forward_memory(
    parts,
    weight,
    hidden,
    memory,
    norms,
    keep,
    lengths,
    outputs,
    final,
    cosines,
    scales,
    remembered,
    checkpoints,
    steps,
    batch,
    keep_probability,
    eta,
    formulas: tl.constexpr,
    every: tl.constexpr,
    block_size: tl.constexpr,
    block_tile: tl.constexpr,
):
    """`memory` holds R_0 and is overwritten with R_t; `remembered` (T, B, N) takes R_t h_{t−1}."""
    size: tl.constexpr = formulas.size
    width: tl.constexpr = formulas.width
    recurrent: tl.constexpr = formulas.recurrent
    sample = tl.program_id(0).to(tl.int64)
    row = sample + tl.arange(0, 1)
    columns = tl.arange(0, block_size)
    inside = (columns < size)[None, :]
    here = row[:, None] * size + columns[None, :]
    memory += sample * (size * size)
    checkpoints += sample * (size * size)
    h = tl.load(hidden + here, mask=inside, other=0.0)

    for t in range(tl.load(lengths + sample).to(tl.int32)):
        moment = tl.cast(t, tl.int64) * batch
        parts_t, scales_t, keep_t = parts + moment * width, scales + moment * 2, keep + moment * size
        remembered_t = remembered + moment * size
        step = Step(parts_t, scales_t, keep_t, norms, norms, keep_probability, eta, row, columns, row < batch)
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
        if formulas.gated:
            gate = tl.load(at + size, mask=inside, other=0.0)
        target, gate, embedded = _settle(target, gate, step, formulas)
        turn = _turn(target, embedded, columns, size)
        u, w = turn.u, turn.w
        tl.store(cosines + moment + row[:, None], turn.cosine)
        alpha, beta = _dot(u, h), _dot(w, h)
        rotated = h + (turn.c11 * alpha + turn.c12 * beta) * u + (turn.c21 * alpha + turn.c22 * beta) * w

        # R_t h = R_{t−1} (Rotation h), in the same pass over the rows of R that turns R_{t−1} into R_t
        saving = (t > 0) & (t % every == 0)
        checkpoint = checkpoints + (tl.cast(t // every, tl.int64) - 1) * batch * (size * size)
        for start in range(0, size, block_tile):
            out = start + tl.arange(0, block_tile)
            tile_at = out[:, None] * size + columns[None, :]
            valid = (out < size)[:, None] & inside
            tile = tl.load(memory + tile_at, mask=valid, other=0.0)
            tl.store(checkpoint + tile_at, tile, mask=valid & saving)
            tl.store(remembered_t + sample * size + out, tl.sum(tile * rotated, axis=1), mask=out < size)
            tile_u, tile_w = _dot(tile, u), _dot(tile, w)
            tile += (turn.c11 * tile_u + turn.c21 * tile_w) * u + (turn.c12 * tile_u + turn.c22 * tile_w) * w
            tl.store(memory + tile_at, tile, mask=valid)
        tl.debug_barrier()

        candidate = embedded + tl.load(remembered_t + here, mask=inside, other=0.0)
        h = _new_hidden(candidate, gate, h, step, formulas)
        tl.store(outputs + moment * size + here, h, mask=inside)
    tl.store(final + here, h, mask=inside)


@triton.jit(do_not_specialize=["steps", "batch"])
def _backward_memory(
    parts,
    weight,
    hidden,
    memory,
    norms,
    keep,
    lengths,
    outputs,
    scales,
    remembered,
    checkpoints,
    grad_outputs,
    grad_hidden,
    grad_memory,
    grad_norms,
    steps,
    batch,
    keep_probability,
    eta,
    formulas: tl.constexpr,
    every: tl.constexpr,
    block_size: tl.constexpr,
    block_tile: tl.constexpr,
):
    """`memory` holds R_T and is turned back; `grad_memory`, `grad_hidden` go from the last state's to the first's."""
    size: tl.constexpr = formulas.size
    width: tl.constexpr = formulas.width
    recurrent: tl.constexpr = formulas.recurrent
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
        if formulas.gated:
            tl.store(at + size, tl.zeros([1, block_size], tl.float32), mask=inside)

    for back in range(length):
        t = length - 1 - back
        moment = tl.cast(t, tl.int64) * batch
        parts_t, scales_t, keep_t = parts + moment * width, scales + moment * 2, keep + moment * size
        remembered_t = remembered + moment * size
        step = Step(parts_t, scales_t, keep_t, norms, grad_norms, keep_probability, eta, row, columns, row < batch)
        previous = hidden
        if t > 0:
            previous = outputs + (moment - batch) * size
        h = tl.load(previous + here, mask=inside, other=0.0)
        saved_target, saved_gate, target, gate, embedded = _recall(step, formulas)
        d = dh + tl.load(grad_outputs + moment * size + here, mask=inside, other=0.0)
        candidate = embedded + tl.load(remembered_t + here, mask=inside, other=0.0)
        dy, dgate, dh = _new_hidden_backward(d, candidate, gate, saved_gate, h, step, formulas)
        # the tiles want it along their rows; what stood there is spent
        tl.store(remembered_t + here, dy, mask=inside)
        tl.debug_barrier()

        turn = _turn(target, embedded, columns, size)
        u, w, c11, c12, c21, c22 = turn.u, turn.w, turn.c11, turn.c12, turn.c21, turn.c22
        # R_t is the checkpoint taken before step t + 1, where there is one
        source = memory
        if (t + 1) % every == 0 and t + 1 < length:
            source = checkpoints + (tl.cast((t + 1) // every, tl.int64) - 1) * batch * (size * size)
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
            dy_out = tl.load(remembered_t + sample * size + out, mask=out < size, other=0.0)[:, None]
            # R_t, and ∂L/∂R_t with what y_t = R_t h_{t−1} adds
            tile = tl.load(source + tile_at, mask=valid, other=0.0)
            d_tile = tl.load(grad_memory + tile_at, mask=valid, other=0.0) + dy_out * h
            dh += tl.sum(tile * dy_out, axis=0, keep_dims=True)
            # R_{t−1} = R_t Rotationᵀ
            tile_u, tile_w = _dot(tile, u), _dot(tile, w)
            tile += (c11 * tile_u + c12 * tile_w) * u + (c21 * tile_u + c22 * tile_w) * w
            tl.store(memory + tile_at, tile, mask=valid)
            # with M = R_{t−1}ᵀ ∂L/∂R_t and E = [u w], ∂E = M E Cᵀ + Mᵀ E C and ∂C = Eᵀ M E
            tile_u, tile_w = _dot(tile, u), _dot(tile, w)
            d_u, d_w = _dot(d_tile, u), _dot(d_tile, w)
            to_u, to_w = c11 * d_u + c12 * d_w, c21 * d_u + c22 * d_w
            du += tl.sum(tile * to_u + d_tile * (c11 * tile_u + c21 * tile_w), axis=0, keep_dims=True)
            dw += tl.sum(tile * to_w + d_tile * (c12 * tile_u + c22 * tile_w), axis=0, keep_dims=True)
            dc11 += tl.sum(tile_u * d_u, axis=0, keep_dims=True)
            dc12 += tl.sum(tile_u * d_w, axis=0, keep_dims=True)
            dc21 += tl.sum(tile_w * d_u, axis=0, keep_dims=True)
            dc22 += tl.sum(tile_w * d_w, axis=0, keep_dims=True)
            # ∂L/∂R_{t−1} = ∂L/∂R_t Rotationᵀ
            tl.store(grad_memory + tile_at, d_tile + to_u * u + to_w * w, mask=valid)

        dembedded, dtarget = _turn_backward(du, dw, dc11, dc12, dc21, dc22, turn)
        dtarget = _target_backward(dtarget, saved_target, step, formulas)
        at = parts_t + row[:, None] * width + columns[None, :]
        tl.store(at, dtarget, mask=inside)
        if formulas.gated:
            tl.store(at + size, dgate, mask=inside)
        tl.store(at + recurrent, dembedded + dy, mask=inside)
        tl.debug_barrier()

        for start in range(0, recurrent, block_tile):
            out = start + tl.arange(0, block_tile)
            tile_at = weight + out[:, None] * size + columns[None, :]
            tile = tl.load(tile_at, mask=(out < recurrent)[:, None] & inside, other=0.0).to(tl.float32)
            d_out = tl.load(parts_t + sample * width + out, mask=out < recurrent, other=0.0)[:, None]
            dh += tl.sum(tile * d_out, axis=0, keep_dims=True)
    tl.store(grad_hidden + here, dh, mask=inside)


# ---------------------------------------------------------------- what launches them


def _settings(problem: Problem) -> dict[str, Any]:
    """Return the kernels' arguments besides tensors and their sizes."""
    options, keep = problem.options, problem.keep
    groups, size = problem.parts.shape[-2:]
    settings: dict[str, Any] = {
        "keep_probability": float(keep) if isinstance(keep, float | int) else 0.0,
        "eta": 1.0 if options.eta is None else float(options.eta),
        "formulas": Formulas(
            size=size,
            recurrent=(groups - 1) * size,
            width=groups * size,
            gated=options.update_gate,
            normalized=problem.norms is not None,
            time_normalized=options.eta is not None,
            zoneout="none" if keep is None else "mask" if isinstance(keep, Tensor) else "probability",
            activation=options.activation,
        ),
    }
    if problem.memory is not None:
        block_size = triton.next_power_of_2(size)
        tile = min(max(TILE // block_size, 1), block_size)
        warps = 4 if size <= 64 else 8
        return settings | {
            "every": CHECKPOINT_EVERY,
            "block_size": block_size,
            "block_tile": tile,
            "num_warps": warps,
            "num_stages": 1,
        }
    block_size = max(triton.next_power_of_2(size), 16)  # tl.dot's minimum
    is_float = problem.weight_hh.dtype == torch.float32
    precision = "ieee" if is_float and not torch.backends.cuda.matmul.allow_tf32 else "tf32"
    resident = size <= RESIDENT_SIZE[precision]
    return settings | {
        "precision": precision,
        "resident": resident,
        "block_batch": BLOCK_BATCH,
        "block_rows": BLOCK_BATCH if resident else min(max(TILE // block_size, 1), BLOCK_BATCH),
        "block_size": block_size,
        "block_out": min(block_size, 128),
        "block_in": min(block_size, 32 if is_float else 64),
        "num_warps": 4 if size <= 32 else 8,
        "num_stages": 1 if resident else 2,
    }


def _common(problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the initial hidden state, norms, keep and lengths as the kernels take them; any tensor where unused."""
    hidden = problem.hidden.float()
    steps, batch = problem.parts.shape[:2]
    norms = hidden if problem.norms is None else problem.norms.float()
    keep = problem.keep.float() if isinstance(problem.keep, Tensor) else hidden
    lengths = problem.lengths
    if lengths is None:
        lengths = torch.full((batch,), steps, dtype=torch.int64, device=hidden.device)
    return hidden, norms, keep, lengths


def prepare(device: torch.device) -> None:
    """Run a small problem, once a device and process; see `gyral.ops.rum.sequence.Kernels`."""
    obstacle = _probe(device)
    if obstacle is not None:
        raise KernelUnavailableError(f"Triton's kernels do not run on {device}: {obstacle}")


@functools.cache
def _probe(device: torch.device) -> str | None:
    """Return why a small problem fails forward or backward, None where it succeeds."""
    steps, batch, size = 2, 3, 4

    def numbers(*shape: int) -> Tensor:
        return torch.linspace(-1, 1, math.prod(shape), device=device).view(shape)

    try:
        for memory in (None, torch.eye(size, device=device).repeat(batch, 1, 1)):
            state = numbers(batch, size)
            options = Options("relu", True, None)
            problem = Problem(
                numbers(steps, batch, 3, size), numbers(2 * size, size), state, memory, None, None, None, options
            )
            solution = forward(problem)
            gradients = backward(problem, solution, numbers(steps, batch, size), state, memory)
            if not (solution.outputs.isfinite().all() and gradients.parts.isfinite().all()):
                return "their results are not finite"
    except Exception as error:  # the compiler, the driver and the interpreter raise whatever they like
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    return None


def forward(problem: Problem) -> Solution:
    """Run the recurrence of `gyral.cells.rum.RUMCell`, λ = 0 or λ = 1, from the projected inputs.

    Overwrites `problem.parts` if that is float32. For λ = 1 the memory is read and written once a step, in global
    memory, of which the caches hold a small one.

    Args:
        problem: see `gyral.ops.rum.sequence.Problem`; on a CUDA device, or anywhere under Triton's interpreter. `parts` and
            `weight_hh` float32, bfloat16 or float16.

    Returns:
        outputs (T, B, N), hidden (B, N), memory (B, N, N) or None, cosines (T, B), all float32.
    """
    steps, batch = problem.parts.shape[:2]
    size = problem.hidden.shape[-1]
    parts = problem.parts.float()
    hidden, norms, keep, lengths = _common(problem)
    # the kernel for λ = 1 leaves alone what lies beyond a sequence's length
    make = torch.zeros if problem.memory is not None and problem.lengths is not None else torch.empty
    outputs = make((steps, batch, size), dtype=torch.float32, device=parts.device)
    final = torch.empty_like(hidden)
    cosines = torch.empty((steps, batch), dtype=torch.float32, device=parts.device)
    scales = torch.empty(
        (steps, batch, 2) if problem.norms is not None else (1,), dtype=torch.float32, device=parts.device
    )
    inputs = (parts, problem.weight_hh, hidden)
    results = (norms, keep, lengths, outputs, final, cosines, scales)
    with torch.cuda.device_of(parts):
        if problem.memory is None:
            programs = triton.cdiv(batch, BLOCK_BATCH)
            _forward_rows[(programs,)](*inputs, *results, steps, batch, **_settings(problem))
            return Solution(outputs, final, None, cosines, (parts, scales))
        memory = problem.memory.to(torch.float32, copy=True)
        remembered = torch.empty_like(outputs)
        checkpoints = memory.new_empty((steps - 1) // CHECKPOINT_EVERY, *memory.shape)
        saved = (remembered, checkpoints)
        _forward_memory[(batch,)](*inputs, memory, *results, *saved, steps, batch, **_settings(problem))
        return Solution(outputs, final, memory, cosines, (parts, scales, *saved))


def backward(
    problem: Problem, solution: Solution, grad_outputs: Tensor, grad_hidden: Tensor, grad_memory: Tensor | None
) -> Gradients:
    """Return the gradients of everything but the weights, whose gradient is a product of that of `parts`.

    It can run once after a `forward`, whose saved tensors it overwrites.

    Args:
        problem: what `forward` got.
        solution: what it returned.
        grad_outputs: (T, B, N).
        grad_hidden: (B, N).
        grad_memory: (B, N, N), None for λ = 0.

    Returns:
        See `gyral.ops.rum.sequence.Gradients`; all float32, `parts` in the place of the saved ones.
    """
    steps, batch = problem.parts.shape[:2]
    parts, scales, *saved = solution.saved
    hidden, norms, keep, lengths = _common(problem)
    programs = batch if problem.memory is not None else triton.cdiv(batch, BLOCK_BATCH)
    grad_outputs = grad_outputs.float().contiguous()
    grad_hidden = torch.empty_like(hidden).copy_(grad_hidden)
    grad_norms = None if problem.norms is None else norms.new_zeros(programs, *norms.shape)
    norms_place = hidden if grad_norms is None else grad_norms
    inputs = (parts, problem.weight_hh, hidden)
    before = (norms, keep, lengths, solution.outputs.contiguous(), scales)
    with torch.cuda.device_of(parts):
        if solution.memory is None:
            arguments = [*inputs, *before, grad_outputs, grad_hidden, norms_place]
            _backward_rows[(programs,)](*arguments, steps, batch, **_settings(problem))
        else:
            assert grad_memory is not None
            memory = solution.memory.clone()
            grad_memory = torch.empty_like(memory).copy_(grad_memory)
            arguments = [*inputs, memory, *before, *saved, grad_outputs, grad_hidden, grad_memory, norms_place]
            _backward_memory[(programs,)](*arguments, steps, batch, **_settings(problem))
    summed = None if grad_norms is None else grad_norms.sum(0)
    return Gradients(parts, parts.sum((0, 1)), grad_hidden, grad_memory, summed)
