"""RUM's recurrence as Triton kernels: the whole time loop of a block of sequences in one program.

λ = 0: a program owns a block of batch rows, λ = 1: one sequence and its associative memory. Programs never wait for one
another. A step's row-wise part sees whole rows, so that its sums over the hidden units are plain reductions; only the
recurrent products and the memory are walked in tiles. Where one phase of a step reads from global memory what other
threads of the program wrote in the phase before, a barrier stands between them.

The rotation is I + [u w] C [u w]ᵀ, u = ε̃/‖ε̃‖, v = τ/‖τ‖, c = u·v, with a 2 × 2 matrix C:

* c ≥ −½: w = v, s = 1/(1 + c), C = [[−s, −s], [2 − s, −s]], which needs no component of v orthogonal to u;
* c < −½: w = r, the part of v orthogonal to u, κ = (1 − c)/‖r‖², C = [[c − 1, 1], [−1, −κ]], as `src.ops.rotation`.

For λ = 1 the backward pass runs the memory backwards, R_{t−1} = R_t Rotation(τ_t, ε̃_t), and takes up the exact one
every `CHECKPOINT_EVERY` steps, so that rounding does not pile up over long sequences.

All arithmetic is float32 but that of the recurrent products for λ = 0, whose factors have the type of the weights.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from src.ops.rum import Gradients, Problem, Solution

CHECKPOINT_EVERY = 1024  # steps of λ = 1 between two saved memories
BLOCK_BATCH = 16  # rows of a program for λ = 0: the fewest that tl.dot takes
RESIDENT_SIZE = 128  # up to this many hidden units the weights stay on chip
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
    squared: Any
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
    square = x * x
    tail = (-5.70498872745e-3 * square + 2.06390887954e-2) * square - 5.37397155531e-2
    tail = (tail * square + 1.33314422036e-1) * square - 3.33332819422e-1
    return tl.where(size < 0.625, x + x * (square * tail), tl.where(x < 0, -far, far))


@triton.jit
def _activate(x, activation: tl.constexpr):
    if activation == "relu":
        result = tl.maximum(x, 0.0)
    elif activation == "tanh":
        result = _tanh(x)
    elif activation == "sigmoid":
        result = _sigmoid(x)
    else:
        result = x / (1.0 + tl.abs(x))
    return result


@triton.jit
def _slope(x, activated, activation: tl.constexpr):
    """f′(x), `activated` being f(x)."""
    if activation == "relu":
        result = tl.where(x > 0, 1.0, 0.0)
    elif activation == "tanh":
        result = 1.0 - activated * activated
    elif activation == "sigmoid":
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
    variance = _dot(centred, centred) / size
    scale = 1.0 / tl.sqrt_rn(variance + EPSILON)
    return centred * scale, scale


@triton.jit
def _scale_and_shift(normalized, norms, which: tl.constexpr, columns, size: tl.constexpr):
    """Gain and bias of one of the three layer normalizations."""
    inside = columns < size
    gain = tl.load(norms + 2 * which * size + columns, mask=inside, other=0.0)
    bias = tl.load(norms + (2 * which + 1) * size + columns, mask=inside, other=0.0)
    return normalized * gain[None, :] + bias[None, :]


@triton.jit
def _normalize_backward(d, normalized, scale, norms, grad_norms, which: tl.constexpr, columns, size: tl.constexpr):
    """Gradient of what was normalized; adds this program's gradients of gain and bias to `grad_norms`."""
    inside = columns < size
    at = grad_norms + 2 * which * size + columns
    tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(d * normalized, axis=0), mask=inside)
    tl.store(at + size, tl.load(at + size, mask=inside, other=0.0) + tl.sum(d, axis=0), mask=inside)
    tl.debug_barrier()  # other threads may load these sums next time

    d = d * tl.load(norms + 2 * which * size + columns, mask=inside, other=0.0)[None, :]
    mean = tl.sum(d, axis=1, keep_dims=True) / size
    along = _dot(d, normalized) / size
    return tl.where(inside[None, :], scale * (d - mean - normalized * along), 0.0)


@triton.jit
def _turn(target, embedded, columns, size: tl.constexpr):
    """The rotation from `embedded` to `target`: vectors, C, and what its gradient needs."""
    inverse_embedded = _inverse_norm(embedded)
    inverse_target = _inverse_norm(target)
    both = (inverse_embedded > 0) & (inverse_target > 0)
    inverse_embedded = tl.where(both, inverse_embedded, 0.0)
    inverse_target = tl.where(both, inverse_target, 0.0)
    u = embedded * inverse_embedded
    v = target * inverse_target
    c = _dot(u, v)

    careful = c < -0.5
    w = v
    rho = tl.full(c.shape, 1.0, tl.float32)
    opposite = c < -2.0  # nowhere yet
    if tl.min(c) < -0.5:
        r = v - c * u
        r -= _dot(u, r) * u
        squared = _dot(r, r)
        opposite = careful & (squared < SMALLEST_SINE * SMALLEST_SINE)
        # the axis of u's smallest coordinate, orthogonalized, for a plane that is not defined
        smallest = tl.argmin(tl.where((columns < size)[None, :], tl.abs(u), float("inf")), axis=1, keep_dims=True)
        axis = tl.where(columns[None, :] == smallest, 1.0, 0.0)
        axis -= _dot(axis, u) * u
        r = tl.where(opposite, axis * (SMALLEST_SINE * _inverse_norm(axis)), r)
        w = tl.where(careful, r, v)
        rho = tl.where(opposite, SMALLEST_SINE * SMALLEST_SINE, tl.where(careful, squared, 1.0))
    s = 1.0 / (1.0 + tl.where(careful, 0.0, c))
    c11 = tl.where(careful, c - 1.0, -s)
    c12 = tl.where(careful, 1.0, -s)
    c21 = tl.where(careful, -1.0, 2.0 - s)
    c22 = tl.where(careful, (c - 1.0) / rho, -s)
    cosine = tl.where(both, c, 1.0)
    return u, v, w, c11, c12, c21, c22, c, rho, careful, opposite, inverse_embedded, inverse_target, cosine


@triton.jit
def _turn_backward(
    du, dw, dc11, dc12, dc21, dc22, u, v, w, c22, c, rho, careful, opposite, inverse_embedded, inverse_target
):
    """Gradients of `embedded` and `target` from those of u, w and C."""
    # C22 = −s in the one form, −κ in the other
    dc = tl.where(careful, dc11 + dc22 / rho, c22 * c22 * (dc11 + dc12 + dc21 + dc22))
    drho = tl.where(careful, -dc22 * c22 / rho, 0.0)
    dw = tl.where(opposite, 0.0, dw + 2.0 * drho * w)
    orthogonalized = tl.where(careful, 1.0, 0.0)
    du -= orthogonalized * c * dw
    dc -= orthogonalized * _dot(u, dw)
    dv = dw + dc * u
    du += dc * v
    return inverse_embedded * (du - _dot(u, du) * u), inverse_target * (dv - _dot(v, dv) * v)


@triton.jit
def _settle(
    target,
    gate,
    parts,
    scales,
    norms,
    rows,
    columns,
    live,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
):
    """Return memory target and update gate from their sums; save in the step's `parts` what `_recall` needs."""
    valid = live[:, None] & (columns < size)[None, :]
    at = parts + rows[:, None] * ((2 + gated) * size) + columns[None, :]
    if normalized:
        target, scale = _normalize(target, columns, size)
        tl.store(scales + 2 * rows[:, None], scale, mask=live[:, None])
    tl.store(at, target, mask=valid)
    if normalized:
        target = _scale_and_shift(target, norms, 0, columns, size)
    if gated:
        if normalized:
            gate, scale = _normalize(gate, columns, size)
            tl.store(scales + 2 * rows[:, None] + 1, scale, mask=live[:, None])
            tl.store(at + size, gate, mask=valid)
            gate = _sigmoid(_scale_and_shift(gate, norms, 1, columns, size))
        else:
            gate = _sigmoid(gate)
            tl.store(at + size, gate, mask=valid)
    return target, gate


@triton.jit
def _recall(
    parts,
    norms,
    rows,
    columns,
    live,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
):
    """Return embedded input, the saved target and gate, and memory target and update gate themselves."""
    valid = live[:, None] & (columns < size)[None, :]
    at = parts + rows[:, None] * ((2 + gated) * size) + columns[None, :]
    saved_target = tl.load(at, mask=valid, other=0.0)
    target = saved_target
    if normalized:
        target = _scale_and_shift(saved_target, norms, 0, columns, size)
    saved_gate = saved_target  # any tensor, where there is no gate
    gate = saved_target
    if gated:
        saved_gate = tl.load(at + size, mask=valid, other=0.0)
        gate = saved_gate
        if normalized:
            gate = _sigmoid(_scale_and_shift(saved_gate, norms, 1, columns, size))
    embedded = tl.load(at + (1 + gated) * size, mask=valid, other=0.0)
    return embedded, saved_target, saved_gate, target, gate


@triton.jit
def _kept(keep, keep_probability, at, valid, zoneout: tl.constexpr):
    if zoneout == BY_MASK:
        kept = tl.load(keep + at, mask=valid, other=0.0)
    else:
        kept = tl.full(at.shape, 1.0, tl.float32) * keep_probability
    return kept


@triton.jit
def _new_hidden(
    candidate,
    gate,
    h,
    keep,
    keep_probability,
    norms,
    eta,
    rows,
    columns,
    live,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
):
    """Return h_t from ε̃_t + R_t h_{t−1}, the update gate and h_{t−1}."""
    inside = (columns < size)[None, :]
    if normalized:
        candidate, _ = _normalize(candidate, columns, size)
        candidate = _scale_and_shift(candidate, norms, 2, columns, size)
    new = _activate(candidate, activation)
    if gated:
        new += gate * (h - new)
    new = tl.where(inside, new, 0.0)
    if time_normalized:
        new *= eta * _inverse_norm(new)
    if zoneout != 0:
        at = rows[:, None] * size + columns[None, :]
        new += _kept(keep, keep_probability, at, live[:, None] & inside, zoneout) * (h - new)
    return new


@triton.jit
def _new_hidden_backward(
    d,
    candidate,
    gate,
    saved_gate,
    h,
    keep,
    keep_probability,
    norms,
    grad_norms,
    scales,
    eta,
    rows,
    columns,
    live,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
):
    """Gradients of ε̃_t + R_t h_{t−1}, of the update gate's sum and of h_{t−1} but through R_t, from that of h_t."""
    inside = (columns < size)[None, :]
    normal = candidate
    scale = tl.zeros([d.shape[0], 1], tl.float32)
    if normalized:
        normal, scale = _normalize(candidate, columns, size)
        candidate = _scale_and_shift(normal, norms, 2, columns, size)
    activated = _activate(candidate, activation)

    dh = tl.zeros(d.shape, tl.float32)
    if zoneout != 0:
        at = rows[:, None] * size + columns[None, :]
        dh = d * _kept(keep, keep_probability, at, live[:, None] & inside, zoneout)
        d -= dh
    if time_normalized:
        new = activated
        if gated:
            new += gate * (h - activated)
        new = tl.where(inside, new, 0.0)
        inverse = _inverse_norm(new)
        new *= inverse
        d = eta * inverse * (d - _dot(new, d) * new)
    dgate = d
    if gated:
        dgate = d * (h - activated) * gate * (1.0 - gate)
        if normalized:
            gate_scale = tl.load(scales + 2 * rows[:, None] + 1, mask=live[:, None], other=0.0)
            dgate = _normalize_backward(dgate, saved_gate, gate_scale, norms, grad_norms, 1, columns, size)
        dh += d * gate
        d -= d * gate
    d *= _slope(candidate, activated, activation)
    if normalized:
        d = _normalize_backward(d, normal, scale, norms, grad_norms, 2, columns, size)
    return d, dgate, dh


# ---------------------------------------------------------------- λ = 0


@triton.jit
def _step(
    target,
    gate,
    h,
    parts,
    scales,
    cosines,
    keep,
    keep_probability,
    norms,
    eta,
    rows,
    columns,
    live,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
):
    """Return h_t (K, N) from the sums of target and gate and h_{t−1}; the pointers are those of the step."""
    valid = live[:, None] & (columns < size)[None, :]
    target, gate = _settle(target, gate, parts, scales, norms, rows, columns, live, size, gated, normalized)
    at = rows[:, None] * ((2 + gated) * size) + (1 + gated) * size + columns[None, :]
    embedded = tl.load(parts + at, mask=valid, other=0.0)
    u, _, w, c11, c12, c21, c22, _, _, _, _, _, _, cosine = _turn(target, embedded, columns, size)
    tl.store(cosines + rows[:, None], cosine, mask=live[:, None])
    alpha, beta = _dot(u, h), _dot(w, h)
    rotated = h + (c11 * alpha + c12 * beta) * u + (c21 * alpha + c22 * beta) * w
    return _new_hidden(
        embedded + rotated,
        gate,
        h,
        keep,
        keep_probability,
        norms,
        eta,
        rows,
        columns,
        live,
        size,
        gated,
        normalized,
        time_normalized,
        zoneout,
        activation,
    )


@triton.jit
def _step_backward(
    d,
    h,
    parts,
    scales,
    keep,
    keep_probability,
    norms,
    grad_norms,
    eta,
    rows,
    columns,
    live,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
):
    """Return the gradients of target's and gate's sum, of the embedded input, and of h_{t−1} but through the sums."""
    embedded, saved_target, saved_gate, target, gate = _recall(
        parts, norms, rows, columns, live, size, gated, normalized
    )
    u, v, w, c11, c12, c21, c22, c, rho, careful, opposite, inverse_embedded, inverse_target, _ = _turn(
        target, embedded, columns, size
    )
    alpha, beta = _dot(u, h), _dot(w, h)
    along_u, along_w = c11 * alpha + c12 * beta, c21 * alpha + c22 * beta
    dy, dgate, dh = _new_hidden_backward(
        d,
        embedded + h + along_u * u + along_w * w,
        gate,
        saved_gate,
        h,
        keep,
        keep_probability,
        norms,
        grad_norms,
        scales,
        eta,
        rows,
        columns,
        live,
        size,
        gated,
        normalized,
        time_normalized,
        zoneout,
        activation,
    )
    p, q = _dot(u, dy), _dot(w, dy)
    dalpha, dbeta = c11 * p + c21 * q, c12 * p + c22 * q
    dembedded, dtarget = _turn_backward(
        along_u * dy + dalpha * h,
        along_w * dy + dbeta * h,
        alpha * p,
        beta * p,
        alpha * q,
        beta * q,
        u,
        v,
        w,
        c22,
        c,
        rho,
        careful,
        opposite,
        inverse_embedded,
        inverse_target,
    )
    if normalized:
        scale = tl.load(scales + 2 * rows[:, None], mask=live[:, None], other=0.0)
        dtarget = _normalize_backward(dtarget, saved_target, scale, norms, grad_norms, 0, columns, size)
    return dtarget, dgate, dembedded + dy, dh + dy + dalpha * u + dbeta * w


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
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
    precision: tl.constexpr,
    resident: tl.constexpr,
    block_batch: tl.constexpr,
    block_rows: tl.constexpr,
    block_size: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * block_batch
    columns = tl.arange(0, block_size)
    inside = columns < size
    width: tl.constexpr = (2 + gated) * size  # of a row of `parts`
    recurrent: tl.constexpr = (1 + gated) * size  # its columns with a recurrent part, the rows of the weights
    rows = first + tl.arange(0, block_batch)
    length = tl.load(lengths + rows, mask=rows < batch, other=0)

    if resident:
        h = tl.load(hidden + rows[:, None] * size + columns[None, :], (rows < batch)[:, None] & inside[None, :], 0.0)
        square = inside[:, None] & inside[None, :]
        across = weight + columns[None, :] * size + columns[:, None]  # transposed
        target_weight = tl.load(across, mask=square, other=0.0)
        gate_weight = target_weight
        if gated:
            gate_weight = tl.load(across + size * size, mask=square, other=0.0)

    for t in range(steps):
        moment = tl.cast(t, tl.int64) * batch
        parts_t, outputs_t, scales_t = parts + moment * width, outputs + moment * size, scales + moment * 2
        cosines_t, keep_t = cosines + moment, keep + moment * size
        if resident:
            live = t < length
            valid = live[:, None] & inside[None, :]
            at = rows[:, None] * width + columns[None, :]
            factor = h.to(weight.dtype.element_ty)
            target = tl.load(parts_t + at, mask=valid, other=0.0)
            target = tl.dot(factor, target_weight, target, input_precision=precision)
            gate = target
            if gated:
                gate = tl.load(parts_t + at + size, mask=valid, other=0.0)
                gate = tl.dot(factor, gate_weight, gate, input_precision=precision)
            h = _step(
                target,
                gate,
                h,
                parts_t,
                scales_t,
                cosines_t,
                keep_t,
                keep_probability,
                norms,
                eta,
                rows,
                columns,
                live,
                size,
                gated,
                normalized,
                time_normalized,
                zoneout,
                activation,
            )
            here = rows[:, None] * size + columns[None, :]
            tl.store(outputs_t + here, tl.where(valid, h, 0.0), (rows < batch)[:, None] & inside[None, :])
            tl.store(final + here, h, mask=(t + 1 == length)[:, None] & inside[None, :])
        else:
            # beyond a sequence's length nobody needs its state, so that the zeros put out there may be read
            previous = hidden
            if t > 0:
                previous = outputs_t - tl.cast(batch, tl.int64) * size
            for start in range(0, recurrent, block_out):
                out = start + tl.arange(0, block_out)
                at = parts_t + rows[:, None] * width + out[None, :]
                valid = (t < length)[:, None] & (out < recurrent)[None, :]
                total = tl.load(at, mask=valid, other=0.0)
                for begin in range(0, size, block_in):
                    unit = begin + tl.arange(0, block_in)
                    factor = tl.load(
                        previous + rows[:, None] * size + unit[None, :],
                        mask=(rows < batch)[:, None] & (unit < size)[None, :],
                        other=0.0,
                    )
                    across = tl.load(
                        weight + out[None, :] * size + unit[:, None],
                        mask=(unit < size)[:, None] & (out < recurrent)[None, :],
                        other=0.0,
                    )
                    total = tl.dot(factor.to(weight.dtype.element_ty), across, total, input_precision=precision)
                tl.store(at, total, mask=valid)
            tl.debug_barrier()
            for offset in range(0, block_batch, block_rows):
                some = first + offset + tl.arange(0, block_rows)
                ends = tl.load(lengths + some, mask=some < batch, other=0)
                live = t < ends
                valid = live[:, None] & inside[None, :]
                at = some[:, None] * width + columns[None, :]
                target = tl.load(parts_t + at, mask=valid, other=0.0)
                gate = target
                if gated:
                    gate = tl.load(parts_t + at + size, mask=valid, other=0.0)
                here = some[:, None] * size + columns[None, :]
                new = _step(
                    target,
                    gate,
                    tl.load(previous + here, mask=valid, other=0.0),
                    parts_t,
                    scales_t,
                    cosines_t,
                    keep_t,
                    keep_probability,
                    norms,
                    eta,
                    some,
                    columns,
                    live,
                    size,
                    gated,
                    normalized,
                    time_normalized,
                    zoneout,
                    activation,
                )
                tl.store(outputs_t + here, tl.where(valid, new, 0.0), (some < batch)[:, None] & inside[None, :])
                tl.store(final + here, new, mask=(t + 1 == ends)[:, None] & inside[None, :])
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
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
    precision: tl.constexpr,
    resident: tl.constexpr,
    block_batch: tl.constexpr,
    block_rows: tl.constexpr,
    block_size: tl.constexpr,
    block_out: tl.constexpr,
    block_in: tl.constexpr,
):
    """`grad_hidden` holds the gradient of h_t as t goes back, `grad_norms` (programs, 3, 2, N) starts as zeros."""
    first = tl.program_id(0).to(tl.int64) * block_batch
    grad_norms += tl.program_id(0) * (6 * size)
    columns = tl.arange(0, block_size)
    inside = columns < size
    width: tl.constexpr = (2 + gated) * size
    recurrent: tl.constexpr = (1 + gated) * size
    rows = first + tl.arange(0, block_batch)

    if resident:
        square = inside[:, None] & inside[None, :]
        along = weight + columns[:, None] * size + columns[None, :]
        target_weight = tl.load(along, mask=square, other=0.0)
        gate_weight = target_weight
        if gated:
            gate_weight = tl.load(along + size * size, mask=square, other=0.0)

    for back in range(steps):
        t = steps - 1 - back
        moment = tl.cast(t, tl.int64) * batch
        parts_t, outputs_t, scales_t = parts + moment * width, grad_outputs + moment * size, scales + moment * 2
        keep_t = keep + moment * size
        previous = hidden
        if t > 0:
            previous = outputs + (moment - batch) * size
        for offset in range(0, block_batch, block_rows):
            some = first + offset + tl.arange(0, block_rows)
            known = (some < batch)[:, None] & inside[None, :]
            live = t < tl.load(lengths + some, mask=some < batch, other=0)
            valid = live[:, None] & inside[None, :]
            here = some[:, None] * size + columns[None, :]
            later = tl.load(grad_hidden + here, mask=known, other=0.0)
            dtarget, dgate, dembedded, dh = _step_backward(
                tl.where(valid, later + tl.load(outputs_t + here, mask=valid, other=0.0), 0.0),
                tl.load(previous + here, mask=valid, other=0.0),
                parts_t,
                scales_t,
                keep_t,
                keep_probability,
                norms,
                grad_norms,
                eta,
                some,
                columns,
                live,
                size,
                gated,
                normalized,
                time_normalized,
                zoneout,
                activation,
            )
            at = parts_t + some[:, None] * width + columns[None, :]
            dtarget = tl.where(valid, dtarget, 0.0)
            tl.store(at, dtarget, mask=known)
            if gated:
                dgate = tl.where(valid, dgate, 0.0)
                tl.store(at + size, dgate, mask=known)
            tl.store(at + (1 + gated) * size, tl.where(valid, dembedded, 0.0), mask=known)
            dh = tl.where(valid, dh, later)
            if resident:
                dh = tl.dot(dtarget.to(weight.dtype.element_ty), target_weight, dh, input_precision=precision)
                if gated:
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
                    factor = tl.load(
                        parts_t + rows[:, None] * width + unit[None, :],
                        mask=(rows < batch)[:, None] & (unit < recurrent)[None, :],
                        other=0.0,
                    )
                    along = tl.load(
                        weight + unit[:, None] * size + out[None, :],
                        mask=(unit < recurrent)[:, None] & (out < size)[None, :],
                        other=0.0,
                    )
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
    candidates,
    checkpoints,
    steps,
    batch,
    keep_probability,
    eta,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
    every: tl.constexpr,
    block_size: tl.constexpr,
    block_tile: tl.constexpr,
):
    """`memory` holds R_0 and is overwritten with R_t; `candidates` (T, B, N) takes R_t h_{t−1}."""
    sample = tl.program_id(0).to(tl.int64)
    row = sample + tl.arange(0, 1)
    columns = tl.arange(0, block_size)
    inside = columns < size
    width: tl.constexpr = (2 + gated) * size
    recurrent: tl.constexpr = (1 + gated) * size
    length = tl.load(lengths + sample).to(tl.int32)
    live = row < batch
    valid = inside[None, :]
    memory += sample * (size * size)
    checkpoints += sample * (size * size)
    h = tl.load(hidden + row[:, None] * size + columns[None, :], mask=valid, other=0.0)

    for t in range(length):
        moment = tl.cast(t, tl.int64) * batch
        parts_t, outputs_t, scales_t = parts + moment * width, outputs + moment * size, scales + moment * 2
        cosines_t, keep_t = cosines + moment, keep + moment * size
        for start in range(0, recurrent, block_tile):
            out = start + tl.arange(0, block_tile)
            tile = tl.load(
                weight + out[:, None] * size + columns[None, :], mask=(out < recurrent)[:, None] & valid, other=0.0
            )
            at = parts_t + sample * width + out
            total = tl.load(at, mask=out < recurrent, other=0.0) + tl.sum(tile.to(tl.float32) * h, axis=1)
            tl.store(at, total, mask=out < recurrent)
        tl.debug_barrier()

        at = row[:, None] * width + columns[None, :]
        target = tl.load(parts_t + at, mask=valid, other=0.0)
        gate = target
        if gated:
            gate = tl.load(parts_t + at + size, mask=valid, other=0.0)
        embedded = tl.load(parts_t + at + recurrent, mask=valid, other=0.0)
        target, gate = _settle(target, gate, parts_t, scales_t, norms, row, columns, live, size, gated, normalized)
        u, _, w, c11, c12, c21, c22, _, _, _, _, _, _, cosine = _turn(target, embedded, columns, size)
        tl.store(cosines_t + row[:, None], cosine)
        alpha, beta = _dot(u, h), _dot(w, h)
        rotated = h + (c11 * alpha + c12 * beta) * u + (c21 * alpha + c22 * beta) * w

        # R_t h = R_{t−1} (Rotation h), in the same pass over the rows of R that turns R_{t−1} into R_t
        saving = (t > 0) & (t % every == 0)
        checkpoint = checkpoints + (tl.cast(t // every, tl.int64) - 1) * batch * (size * size)
        for start in range(0, size, block_tile):
            out = start + tl.arange(0, block_tile)
            at = out[:, None] * size + columns[None, :]
            tile_valid = (out < size)[:, None] & valid
            tile = tl.load(memory + at, mask=tile_valid, other=0.0)
            tl.store(checkpoint + at, tile, mask=tile_valid & saving)
            tl.store(candidates + (moment + sample) * size + out, tl.sum(tile * rotated, axis=1), mask=out < size)
            tile_u, tile_w = _dot(tile, u), _dot(tile, w)
            tile += (c11 * tile_u + c21 * tile_w) * u + (c12 * tile_u + c22 * tile_w) * w
            tl.store(memory + at, tile, mask=tile_valid)
        tl.debug_barrier()

        here = row[:, None] * size + columns[None, :]
        remembered = tl.load(candidates + moment * size + here, mask=valid, other=0.0)
        h = _new_hidden(
            embedded + remembered,
            gate,
            h,
            keep_t,
            keep_probability,
            norms,
            eta,
            row,
            columns,
            live,
            size,
            gated,
            normalized,
            time_normalized,
            zoneout,
            activation,
        )
        tl.store(outputs_t + here, h, mask=valid)
    tl.store(final + row[:, None] * size + columns[None, :], h, mask=valid)


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
    candidates,
    checkpoints,
    grad_outputs,
    grad_hidden,
    grad_memory,
    grad_norms,
    steps,
    batch,
    keep_probability,
    eta,
    size: tl.constexpr,
    gated: tl.constexpr,
    normalized: tl.constexpr,
    time_normalized: tl.constexpr,
    zoneout: tl.constexpr,
    activation: tl.constexpr,
    every: tl.constexpr,
    block_size: tl.constexpr,
    block_tile: tl.constexpr,
):
    """`memory` holds R_T and is turned back; `grad_memory` holds ∂L/∂R_t, `grad_hidden` ∂L/∂h_T, then those of t = 0."""
    sample = tl.program_id(0).to(tl.int64)
    grad_norms += sample * (6 * size)
    row = sample + tl.arange(0, 1)
    columns = tl.arange(0, block_size)
    inside = columns < size
    width: tl.constexpr = (2 + gated) * size
    recurrent: tl.constexpr = (1 + gated) * size
    length = tl.load(lengths + sample).to(tl.int32)
    live = row < batch
    valid = inside[None, :]
    memory += sample * (size * size)
    grad_memory += sample * (size * size)
    checkpoints += sample * (size * size)
    here = row[:, None] * size + columns[None, :]
    dh = tl.load(grad_hidden + here, mask=valid, other=0.0)

    for t in range(length, steps):
        at = parts + (tl.cast(t, tl.int64) * batch + row[:, None]) * width + columns[None, :]
        for slot in tl.static_range(2 + gated):
            tl.store(at + slot * size, tl.zeros([1, block_size], tl.float32), mask=valid)

    for back in range(length):
        t = length - 1 - back
        moment = tl.cast(t, tl.int64) * batch
        parts_t, scales_t, keep_t = parts + moment * width, scales + moment * 2, keep + moment * size
        previous = hidden
        if t > 0:
            previous = outputs + (moment - batch) * size
        h = tl.load(previous + here, mask=valid, other=0.0)
        embedded, saved_target, saved_gate, target, gate = _recall(
            parts_t, norms, row, columns, live, size, gated, normalized
        )
        dy, dgate, dh = _new_hidden_backward(
            dh + tl.load(grad_outputs + moment * size + here, mask=valid, other=0.0),
            embedded + tl.load(candidates + moment * size + here, mask=valid, other=0.0),
            gate,
            saved_gate,
            h,
            keep_t,
            keep_probability,
            norms,
            grad_norms,
            scales_t,
            eta,
            row,
            columns,
            live,
            size,
            gated,
            normalized,
            time_normalized,
            zoneout,
            activation,
        )
        # the tiles want it by rows; what stood there is spent
        tl.store(candidates + moment * size + here, dy, mask=valid)
        tl.debug_barrier()

        u, v, w, c11, c12, c21, c22, c, rho, careful, opposite, inverse_embedded, inverse_target, _ = _turn(
            target, embedded, columns, size
        )
        # R_t is the checkpoint taken before step t + 1, where there is one
        source = memory
        if ((t + 1) % every == 0) & (t + 1 < length):
            source = checkpoints + (tl.cast((t + 1) // every, tl.int64) - 1) * batch * (size * size)
        du = tl.zeros([1, block_size], tl.float32)
        dw = tl.zeros([1, block_size], tl.float32)
        dc11 = tl.zeros([1, 1], tl.float32)
        dc12 = tl.zeros([1, 1], tl.float32)
        dc21 = tl.zeros([1, 1], tl.float32)
        dc22 = tl.zeros([1, 1], tl.float32)
        for start in range(0, size, block_tile):
            out = start + tl.arange(0, block_tile)
            at = out[:, None] * size + columns[None, :]
            tile_valid = (out < size)[:, None] & valid
            dy_out = tl.load(candidates + (moment + sample) * size + out, mask=out < size, other=0.0)[:, None]
            # R_t, and ∂L/∂R_t with what y_t = R_t h_{t−1} adds
            tile = tl.load(source + at, mask=tile_valid, other=0.0)
            d = tl.load(grad_memory + at, mask=tile_valid, other=0.0) + dy_out * h
            dh += tl.sum(tile * dy_out, axis=0, keep_dims=True)
            # R_{t−1} = R_t Rotationᵀ
            tile_u, tile_w = _dot(tile, u), _dot(tile, w)
            tile += (c11 * tile_u + c12 * tile_w) * u + (c21 * tile_u + c22 * tile_w) * w
            # M = R_{t−1}ᵀ ∂L/∂R_t, E = [u w]: ∂E = M E Cᵀ + Mᵀ E C and ∂C = Eᵀ M E
            tile_u, tile_w = _dot(tile, u), _dot(tile, w)
            d_u, d_w = _dot(d, u), _dot(d, w)
            to_u, to_w = c11 * d_u + c12 * d_w, c21 * d_u + c22 * d_w
            du += tl.sum(tile * to_u + d * (c11 * tile_u + c21 * tile_w), axis=0, keep_dims=True)
            dw += tl.sum(tile * to_w + d * (c12 * tile_u + c22 * tile_w), axis=0, keep_dims=True)
            dc11 += tl.sum(tile_u * d_u, axis=0, keep_dims=True)
            dc12 += tl.sum(tile_u * d_w, axis=0, keep_dims=True)
            dc21 += tl.sum(tile_w * d_u, axis=0, keep_dims=True)
            dc22 += tl.sum(tile_w * d_w, axis=0, keep_dims=True)
            # ∂L/∂R_{t−1} = ∂L/∂R_t Rotationᵀ
            tl.store(memory + at, tile, mask=tile_valid)
            tl.store(grad_memory + at, d + to_u * u + to_w * w, mask=tile_valid)

        dembedded, dtarget = _turn_backward(
            du,
            dw,
            dc11,
            dc12,
            dc21,
            dc22,
            u,
            v,
            w,
            c22,
            c,
            rho,
            careful,
            opposite,
            inverse_embedded,
            inverse_target,
        )
        if normalized:
            scale = tl.load(scales_t + 2 * row[:, None])
            dtarget = _normalize_backward(dtarget, saved_target, scale, norms, grad_norms, 0, columns, size)
        at = parts_t + row[:, None] * width + columns[None, :]
        tl.store(at, dtarget, mask=valid)
        if gated:
            tl.store(at + size, dgate, mask=valid)
        tl.store(at + recurrent, dembedded + dy, mask=valid)
        tl.debug_barrier()

        for start in range(0, recurrent, block_tile):
            out = start + tl.arange(0, block_tile)
            tile = tl.load(
                weight + out[:, None] * size + columns[None, :], mask=(out < recurrent)[:, None] & valid, other=0.0
            )
            d_out = tl.load(parts_t + sample * width + out, mask=out < recurrent, other=0.0)[:, None]
            dh += tl.sum(tile.to(tl.float32) * d_out, axis=0, keep_dims=True)
    tl.store(grad_hidden + here, dh, mask=valid)


# ---------------------------------------------------------------- what calls them


def _formulas(problem: Problem) -> dict[str, object]:
    """Return the arguments that decide the formulas."""
    options, keep = problem.options, problem.keep
    return {
        "keep_probability": float(keep) if isinstance(keep, (int, float)) else 0.0,
        "eta": 1.0 if options.eta is None else float(options.eta),
        "size": problem.hidden.shape[-1],
        "gated": int(options.update_gate),
        "normalized": problem.norms is not None,
        "time_normalized": options.eta is not None,
        "zoneout": 0 if keep is None else 1 if isinstance(keep, Tensor) else 2,
        "activation": options.activation,
    }


def _tiling(problem: Problem) -> dict[str, object]:
    """Return the arguments that decide how the work is cut, for λ = 0 or λ = 1."""
    size = problem.hidden.shape[-1]
    if problem.memory is not None:
        block_size = triton.next_power_of_2(size)
        return {
            "every": CHECKPOINT_EVERY,
            "block_size": block_size,
            "block_tile": min(max(TILE // block_size, 1), block_size),
            "num_warps": 4 if size <= 64 else 8,
        }
    block_size = max(triton.next_power_of_2(size), 16)  # tl.dot's minimum
    resident = size <= RESIDENT_SIZE
    is_float = problem.weight_hh.dtype == torch.float32
    return {
        "precision": "ieee" if is_float and not torch.backends.cuda.matmul.allow_tf32 else "tf32",
        "resident": resident,
        "block_batch": BLOCK_BATCH,
        "block_rows": BLOCK_BATCH if resident else min(max(TILE // block_size, 1), BLOCK_BATCH),
        "block_size": block_size,
        "block_out": min(block_size, 128),
        "block_in": 32 if is_float else 64,
        "num_warps": 4 if size <= 32 else 8,
        "num_stages": 2,
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


def forward(problem: Problem) -> Solution:
    """Run the recurrence: `src.cells.rum.RUMCell`, λ = 0 or λ = 1, from the projected inputs.

    Overwrites `problem.parts` if that is float32. For λ = 1 the memory is read and written once a step, in global
    memory, where a small one stays in the cache.

    Args:
        problem: see `src.ops.rum.Problem`; a CUDA device, or any under Triton's interpreter. `parts` and `weight_hh`
            float32, bfloat16 or float16.

    Returns:
        outputs (T, B, N), hidden (B, N), memory (B, N, N) or None, cosines (T, B), all float32.
    """
    steps, batch = problem.parts.shape[:2]
    size = problem.hidden.shape[-1]
    parts = problem.parts.float()
    hidden, norms, keep, lengths = _common(problem)
    # the kernel for λ = 1 leaves alone what lies beyond a sequence's length
    make = torch.zeros if problem.memory is not None and problem.lengths is not None else torch.empty
    outputs = make((steps, batch, size), device=parts.device)
    final = torch.empty_like(hidden)
    cosines = parts.new_empty(steps, batch)
    scales = parts.new_empty((steps, batch, 2) if problem.norms is not None else (0,))
    with torch.cuda.device_of(parts):
        if problem.memory is None:
            _forward_rows[(triton.cdiv(batch, BLOCK_BATCH),)](
                parts,
                problem.weight_hh,
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
                **_formulas(problem),
                **_tiling(problem),
            )
            return Solution(outputs, final, None, cosines, (parts, scales))
        memory = problem.memory.to(torch.float32, copy=True)
        candidates = parts.new_empty(steps, batch, size)
        checkpoints = parts.new_empty((steps - 1) // CHECKPOINT_EVERY, batch, size, size)
        _forward_memory[(batch,)](
            parts,
            problem.weight_hh,
            hidden,
            memory,
            norms,
            keep,
            lengths,
            outputs,
            final,
            cosines,
            scales,
            candidates,
            checkpoints,
            steps,
            batch,
            **_formulas(problem),
            **_tiling(problem),
        )
        return Solution(outputs, final, memory, cosines, (parts, scales, candidates, checkpoints))


def backward(
    problem: Problem, solution: Solution, grad_outputs: Tensor, grad_hidden: Tensor, grad_memory: Tensor | None
) -> Gradients:
    """Return the gradients of everything but the weights, which are a product of `parts`' with the states.

    Can be run once after a `forward`: it overwrites what that saved.

    Args:
        problem, solution: what `forward` got and returned.
        grad_outputs, grad_hidden, grad_memory: (T, B, N), (B, N), (B, N, N); the last None for λ = 0.

    Returns:
        See `src.ops.rum.Gradients`; float32, `parts` in the memory of the saved ones.
    """
    steps, batch = problem.parts.shape[:2]
    size = problem.hidden.shape[-1]
    parts, scales = solution.saved[:2]
    hidden, norms, keep, lengths = _common(problem)
    outputs, grad_outputs = solution.outputs.contiguous(), grad_outputs.float().contiguous()
    grad_initial = torch.empty_like(hidden).copy_(grad_hidden)
    programs = batch if problem.memory is not None else triton.cdiv(batch, BLOCK_BATCH)
    grad_norms = parts.new_zeros((programs, 3, 2, size) if problem.norms is not None else (0,))
    grad_initial_memory = None
    with torch.cuda.device_of(parts):
        if problem.memory is None:
            _backward_rows[(programs,)](
                parts,
                problem.weight_hh,
                hidden,
                norms,
                keep,
                lengths,
                outputs,
                scales,
                grad_outputs,
                grad_initial,
                grad_norms,
                steps,
                batch,
                **_formulas(problem),
                **_tiling(problem),
            )
        else:
            assert solution.memory is not None
            assert grad_memory is not None
            candidates, checkpoints = solution.saved[2:]
            grad_initial_memory = torch.empty_like(solution.memory).copy_(grad_memory)
            _backward_memory[(programs,)](
                parts,
                problem.weight_hh,
                hidden,
                solution.memory.clone(),
                norms,
                keep,
                lengths,
                outputs,
                scales,
                candidates,
                checkpoints,
                grad_outputs,
                grad_initial,
                grad_initial_memory,
                grad_norms,
                steps,
                batch,
                **_formulas(problem),
                **_tiling(problem),
            )
    return Gradients(
        parts,
        parts.sum((0, 1)),
        grad_initial,
        grad_initial_memory,
        grad_norms.sum(0) if problem.norms is not None else None,
    )
