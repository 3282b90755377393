"""The row-wise part of a step, forward and backward, shared by the kernels for λ = 0 and λ = 1."""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from gyral.ops.rum.triton.rotation import rotation_between
from gyral.ops.triton.rows import (
    activate,
    activation_slope,
    dot,
    inverse_root,
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
        has_lengths: whether sequences have lengths of their own.
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
    has_lengths: bool
    has_starts: bool
    zoneout: str
    activation: str


class StepArguments(NamedTuple):
    """Values inside a kernel: pointers to tensors (T, B, …), shared arguments, and rows of a step.

    Attributes:
        parts: pointer to (T, B, G N).
        scales: pointer to (T, B, 2), the reciprocal standard deviations of target and gate.
        keep: pointer to the zoneout mask (T, B, N).
        norms, grad_norms: pointers to (3, 2, N); `grad_norms` belongs to this program.
        keep_probability: the zoneout probability, used without a mask.
        eta: the norm of the hidden vector under time normalization.
        epsilon: epsilon of the layer normalizations.
        index: scalars, int64, indices of the rows among the T B rows of all steps.
        columns: indices of the hidden units.
        active: scalars, False for rows whose sequence has ended.
    """

    parts: Any
    scales: Any
    keep: Any
    norms: Any
    grad_norms: Any
    keep_probability: Any
    eta: Any
    epsilon: Any
    index: Any
    columns: Any
    active: Any


@triton.jit
def load_rows(tensor, index, columns, active, size: tl.constexpr):
    """Return rows of a tensor (…, N), zero where `active` is False."""
    valid = active & (columns < size)
    return tl.load(tensor + index * size + columns, mask=valid, other=0.0)


@triton.jit
def load_starts(starts, index, active, config: tl.constexpr):
    """Return scalars, True in active rows that are reset before the step."""
    started = active & False
    if config.has_starts:
        started = tl.load(starts + index, mask=active, other=0) != 0
    return started


@triton.jit
def load_parts(parts, index, columns, active, config: tl.constexpr):
    """Return the sums of target and gate, or what `begin_step` has stored, and the embedded input."""
    valid = active & (columns < config.size)
    at = parts + index * config.width + columns
    target = tl.load(at, mask=valid, other=0.0)
    gate = target  # without a gate this value is not used
    if config.gated:
        gate = tl.load(at + config.size, mask=valid, other=0.0)
    return target, gate, tl.load(at + config.recurrent, mask=valid, other=0.0)


@triton.jit
def store_parts(target, gate, embedded, parts, index, columns, active, config: tl.constexpr):
    """Store gradients of the parts in the place of the parts."""
    valid = active & (columns < config.size)
    at = parts + index * config.width + columns
    tl.store(at, target, mask=valid)
    if config.gated:
        tl.store(at + config.size, gate, mask=valid)
    tl.store(at + config.recurrent, embedded, mask=valid)


@triton.jit
def begin_step(target, gate, embedded, h, cosines, step, config: tl.constexpr):
    """Return the update gate and the rotation of a step, given the sums of target and gate, and h_{t−1}.

    Store the cosine of the angle and, in the place of the sums, what `restore_step` needs.
    """
    size: tl.constexpr = config.size
    active, columns = step.active, step.columns
    valid = active & (columns < size)
    at = step.parts + step.index * config.width + columns
    scale_at = step.scales + 2 * step.index
    if config.normalized:
        target, scale = normalize(target, step.epsilon, columns, size)
        tl.store(scale_at, scale, mask=active)
        if config.gated:
            gate, scale = normalize(gate, step.epsilon, columns, size)
            tl.store(scale_at + 1, scale, mask=active)
    elif config.gated:
        gate = sigmoid(gate)
    tl.store(at, target, mask=valid)
    if config.gated:
        tl.store(at + size, gate, mask=valid)
    gate, rotation = restore_step(target, gate, embedded, h, step, config)
    tl.store(cosines + step.index, rotation.cosine, mask=active)
    return gate, rotation


@triton.jit
def restore_step(target, gate, embedded, h, step, config: tl.constexpr):
    """Return the update gate and the rotation of a step from the values that `begin_step` has stored."""
    if config.normalized:
        target = scale_and_shift(target, step.norms, 0, step.columns, config.size)
        if config.gated:
            gate = sigmoid(scale_and_shift(gate, step.norms, 1, step.columns, config.size))
    return gate, rotation_between(target, embedded, h, step.columns, config.size)


@triton.jit
def load_zoneout(step, config: tl.constexpr):
    """Return the zoneout factor of h_{t−1}: the mask, or its probability."""
    if config.zoneout == "mask":
        kept = load_rows(step.keep, step.index, step.columns, step.active, config.size)
    else:
        kept = step.keep_probability
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
    new = tl.where(step.columns < config.size, new, 0.0)
    if config.time_normalized:
        new *= step.eta * tl.minimum(inverse_root(dot(new, new)), LARGEST_INVERSE)
    if config.zoneout != "none":
        new += load_zoneout(step, config) * (h - new)
    return new


@triton.jit
def part_backward(d, normal, step, which: tl.constexpr, config: tl.constexpr):
    """Return the gradient of the sum of target (0) or gate (1), given that of its normalization, if there is one."""
    if config.normalized:
        scale = tl.load(step.scales + 2 * step.index + which, mask=step.active, other=0.0)
        d = normalize_backward(d, normal, scale, step.norms, step.grad_norms, which, step.columns, config.size)
    return d


@triton.jit
def new_hidden_backward(d, candidate, gate, saved_gate, h, step, config: tl.constexpr):
    """Return the gradients of ε̃_t + R_t h_{t−1}, of the update gate's sum and of h_{t−1}, given that of h_t.

    The gradient of h_{t−1} does not include the path through R_t.
    """
    size: tl.constexpr = config.size
    normal, scale = candidate, step.epsilon  # not used without norms
    if config.normalized:
        normal, scale = normalize(candidate, step.epsilon, step.columns, size)
        candidate = scale_and_shift(normal, step.norms, 2, step.columns, size)
    activated = activate(candidate, config)

    dh = tl.zeros_like(d)
    if config.zoneout != "none":
        dh = d * load_zoneout(step, config)
        d -= dh
    if config.time_normalized:
        new = activated
        if config.gated:
            new += gate * (h - activated)
        new = tl.where(step.columns < size, new, 0.0)
        inverse = tl.minimum(inverse_root(dot(new, new)), LARGEST_INVERSE)
        new *= inverse
        along = tl.where(inverse < LARGEST_INVERSE, dot(new, d), 0.0)  # a smaller vector is multiplied by a constant
        d = step.eta * inverse * (d - along * new)
    dgate = d
    if config.gated:
        dh += d * gate
        dgate = d * (h - activated) * gate * (1.0 - gate)
        d -= d * gate
        dgate = part_backward(dgate, saved_gate, step, 1, config)
    d *= activation_slope(candidate, activated, config)
    if config.normalized:
        d = normalize_backward(d, normal, scale, step.norms, step.grad_norms, 2, step.columns, size)
    return d, dgate, dh
