"""The row-wise part of a step, forward and backward, shared by the kernels for λ = 0 and λ = 1."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.rum.triton.rowwise import (
    activate,
    activation_slope,
    dot,
    inverse_norm,
    normalize,
    normalize_backward,
    scale_and_shift,
    sigmoid,
)

LARGEST_INVERSE = tl.constexpr(1e6)  # 1 / SMALLEST_NORM of `gyral.ops.rum.naive`


class StepConfig(NamedTuple):
    """Compile-time fixed of a kernel.

    Attributes:
        size: N, the size of the hidden state.
        recurrent: (G − 1) N, the width of the recurrent parts.
        width: G N, the width of all parts.
        gated: whether the cell has an update gate.
        normalized: whether the cell has layer normalization.
        time_normalized: whether the cell has time normalization (η).
        has_starts: whether the state of some rows is reset.
        zoneout: "none", "mask" or "probability".
        activation: name of the activation function.
    """

    size: int
    recurrent: int
    width: int
    gated: bool
    normalized: bool
    time_normalized: bool
    has_starts: bool
    zoneout: str
    activation: str


class StepArguments(NamedTuple):
    """Values inside a kernel: pointers to the (B, …) slices of one step, shared arguments, and K row indices.

    Attributes:
        parts: pointer to (B, G N).
        scales: pointer to (B, 2), the reciprocal standard deviations of target and gate.
        keep: pointer to the zoneout mask (B, N).
        norms, grad_norms: pointers to (3, 2, N); `grad_norms` belongs to this program.
        keep_probability: the zoneout probability, used without a mask.
        eta: the norm of the hidden vector under time normalization.
        epsilon: epsilon of the layer normalizations.
        rows, columns: indices of the rows (K,) and of the hidden units.
        active: (K,), False for rows whose sequence has ended.
    """

    parts: Any
    scales: Any
    keep: Any
    norms: Any
    grad_norms: Any
    keep_probability: Any
    eta: Any
    epsilon: Any
    rows: Any
    columns: Any
    active: Any


@triton.jit
def load_starts(starts, rows, active, config: tl.constexpr):
    """Return (K,): True in active rows that are reset before the step; `starts` points to this step, (B,)."""
    started = tl.zeros(active.shape, tl.int1)
    if config.has_starts:
        started = tl.load(starts + rows, mask=active, other=0) != 0
    return started


@triton.jit
def finish_parts(target, gate, step, config: tl.constexpr):
    """Return memory target, update gate and embedded input from the parts' sums; store values for `load_parts`."""
    tl.debug_barrier()  # several threads may hold an element: all have loaded the sums before one overwrites them
    size: tl.constexpr = config.size
    active, columns = step.active[:, None], step.columns
    valid = active & (columns < size)[None, :]
    at = step.parts + step.rows[:, None] * config.width + columns[None, :]
    if config.normalized:
        target, scale = normalize(target, step.epsilon, columns, size)
        tl.store(step.scales + 2 * step.rows[:, None], scale, mask=active)
    tl.store(at, target, mask=valid)
    if config.normalized:
        target = scale_and_shift(target, step.norms, 0, columns, size)
    if config.gated:
        if config.normalized:
            gate, scale = normalize(gate, step.epsilon, columns, size)
            tl.store(step.scales + 2 * step.rows[:, None] + 1, scale, mask=active)
            tl.store(at + size, gate, mask=valid)
            gate = sigmoid(scale_and_shift(gate, step.norms, 1, columns, size))
        else:
            gate = sigmoid(gate)
            tl.store(at + size, gate, mask=valid)
    return target, gate, tl.load(at + config.recurrent, mask=valid, other=0.0)


@triton.jit
def load_parts(step, config: tl.constexpr):
    """Return the saved values of target and gate, the memory target, the update gate and the embedded input."""
    size: tl.constexpr = config.size
    valid = step.active[:, None] & (step.columns < size)[None, :]
    at = step.parts + step.rows[:, None] * config.width + step.columns[None, :]
    saved_target = tl.load(at, mask=valid, other=0.0)
    target = saved_target
    if config.normalized:
        target = scale_and_shift(saved_target, step.norms, 0, step.columns, size)
    saved_gate = saved_target  # without a gate this value is not used
    gate = saved_target
    if config.gated:
        saved_gate = tl.load(at + size, mask=valid, other=0.0)
        gate = saved_gate
        if config.normalized:
            gate = sigmoid(scale_and_shift(saved_gate, step.norms, 1, step.columns, size))
    return saved_target, saved_gate, target, gate, tl.load(at + config.recurrent, mask=valid, other=0.0)


@triton.jit
def load_zoneout(step, config: tl.constexpr):
    """Return the zoneout factor of h_{t−1}: the mask, or its probability."""
    at = step.rows[:, None] * config.size + step.columns[None, :]
    if config.zoneout == "mask":
        valid = step.active[:, None] & (step.columns < config.size)[None, :]
        kept = tl.load(step.keep + at, mask=valid, other=0.0)
    else:
        kept = tl.full(at.shape, 1.0, tl.float32) * step.keep_probability
    return kept


@triton.jit
def new_hidden(candidate, gate, h, step, config: tl.constexpr):
    """Return h_t from ε̃_t + R_t h_{t−1}, the update gate and h_{t−1}."""
    if config.normalized:
        candidate, _ = normalize(candidate, step.epsilon, step.columns, config.size)
        candidate = scale_and_shift(candidate, step.norms, 2, step.columns, config.size)
    new = activate(candidate, config)
    if config.gated:
        new += gate * (h - new)
    new = tl.where((step.columns < config.size)[None, :], new, 0.0)
    if config.time_normalized:
        new *= step.eta * tl.minimum(inverse_norm(new), LARGEST_INVERSE)
    if config.zoneout != "none":
        new += load_zoneout(step, config) * (h - new)
    return new


@triton.jit
def new_hidden_backward(d, candidate, gate, saved_gate, h, step, config: tl.constexpr):
    """Return the gradients of ε̃_t + R_t h_{t−1}, of the update gate's sum and of h_{t−1}, given that of h_t.

    The gradient of h_{t−1} does not include the path through R_t.
    """
    size: tl.constexpr = config.size
    normal = candidate
    scale = tl.zeros([d.shape[0], 1], tl.float32)
    if config.normalized:
        normal, scale = normalize(candidate, step.epsilon, step.columns, size)
        candidate = scale_and_shift(normal, step.norms, 2, step.columns, size)
    activated = activate(candidate, config)

    dh = tl.zeros(d.shape, tl.float32)
    if config.zoneout != "none":
        dh = d * load_zoneout(step, config)
        d -= dh
    if config.time_normalized:
        new = activated
        if config.gated:
            new += gate * (h - activated)
        new = tl.where((step.columns < size)[None, :], new, 0.0)
        inverse = tl.minimum(inverse_norm(new), LARGEST_INVERSE)
        new *= inverse
        along = tl.where(inverse < LARGEST_INVERSE, dot(new, d), 0.0)  # a smaller vector is multiplied by a constant
        d = step.eta * inverse * (d - along * new)
    dgate = d
    if config.gated:
        dh += d * gate
        dgate = d * (h - activated) * gate * (1.0 - gate)
        d -= d * gate
        if config.normalized:
            gate_scale = tl.load(step.scales + 2 * step.rows[:, None] + 1, mask=step.active[:, None], other=0.0)
            dgate = normalize_backward(dgate, saved_gate, gate_scale, step, 1, size)
    d *= activation_slope(candidate, activated, config)
    if config.normalized:
        d = normalize_backward(d, normal, scale, step, 2, size)
    return d, dgate, dh


@triton.jit
def target_backward(dtarget, saved_target, step, config: tl.constexpr):
    """Return the gradient of the target's sum, given that of the memory target."""
    if config.normalized:
        scale = tl.load(step.scales + 2 * step.rows[:, None], mask=step.active[:, None], other=0.0)
        dtarget = normalize_backward(dtarget, saved_target, scale, step, 0, config.size)
    return dtarget
