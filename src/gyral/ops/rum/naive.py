"""RUM in readable functions of torch: the equations of `gyral.cells.rum.RUMCell.step`, and `rum` in terms of them.

The kernels compute the same as `rum`, which provides their second derivatives.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import rotation
from gyral.ops.autograd import outside_autocast
from gyral.ops.compiler import is_exporting_to_onnx
from gyral.ops.dropout import zoneout
from gyral.ops.scan import scan
from gyral.ops.sequences import split_keep

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "softsign": F.softsign}

SMALLEST_NORM = 1e-6  # of the hidden vector in time normalization


class Embedded(NamedTuple):
    """The embedded input ε̃ (…, B, N), its direction, and a unit vector orthogonal to it; see `rotation.plane`."""

    vector: Tensor
    axis: rotation.Direction
    fallback: Tensor


def embed(vector: Tensor) -> Embedded:
    """Return the embedded input with the values that depend on it alone."""
    axis = rotation.direction(vector)
    return Embedded(vector, axis, rotation.perpendicular(axis.unit))


def associate(
    embedded: Embedded, target: Tensor, hidden: Tensor, memory: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Rotate from ε̃ to the memory target τ.

    Args:
        embedded: ε̃ (B, N).
        target: τ (B, N).
        hidden: h_{t−1} (B, N).
        memory: (R_{t−1})^λ (B, N, N), or None for λ = 0.

    Returns:
        ε̃ + R_t h_{t−1} (B, N), R_t = (R_{t−1})^λ Rotation(ε̃, τ) or None, and the cosine (B, 1) of the angle.
    """
    plane = rotation.plane(embedded.axis, target, embedded.fallback)
    if memory is None and is_exporting_to_onnx():  # an exported step leaves out the plane, which nothing reads
        rotated = rotation.apply_by_reflections(embedded.axis, target, embedded.fallback, hidden)
    else:
        rotated = rotation.apply(plane, hidden)
    if memory is not None:
        # outside autocast and float32 at least: the memory is a product of all rotations, whose rounding errors add up
        with outside_autocast(memory.device):
            p, u, q, r = (vector.to(memory.dtype) for vector in rotation.factors(plane))
            columns = memory @ torch.stack((rotated.to(memory.dtype), p, q), dim=-1)
            memory = torch.baddbmm(memory, columns[..., 1:], torch.stack((u, r), dim=-2))
        rotated = columns[..., 0].to(hidden.dtype)
    return embedded.vector + rotated, memory, plane.cosine


def update(candidate: Tensor, gate: Tensor | None, old: Tensor, activation: str, eta: float | None) -> Tensor:
    """Return h_t (B, N) before zoneout.

    Args:
        candidate: ε̃ + R h (B, N), normalized where the cell has layer normalization.
        gate: The update gate before its sigmoid (B, N), or None without one.
        old: h_{t−1} (B, N).
        activation: The function f, one of `ACTIVATIONS`.
        eta: η, or None for no time normalization.
    """
    hidden = ACTIVATIONS[activation](candidate)
    if gate is not None:
        hidden = hidden + torch.sigmoid(gate) * (old - hidden)
    return hidden if eta is None else eta * normalize_in_time(hidden).to(hidden.dtype)


def normalize_in_time(hidden: Tensor) -> Tensor:
    """Return h / max(‖h‖, 1e-6) for h (…, N), whose gradient is at most 10⁶: `tf.nn.l2_normalize` of the authors' code.

    A vector that counts as zero in `rotation.direction` has the gradient 0, as in rotations.
    """
    with torch.no_grad():
        wide = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
        squared = rotation.dot(wide, wide)
        is_small = squared < SMALLEST_NORM**2
        factor = (is_small & (squared > torch.finfo(wide.dtype).tiny)) / SMALLEST_NORM
    return rotation.direction(hidden, where=~is_small).unit + hidden * factor


def step(
    parts: Tensor,
    w_hh: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    keep: Tensor | None,
    *,
    activation: str,
    eta: float | None,
    epsilon: float,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Take one step with λ = 0 or λ = 1.

    Args:
        parts: W_ih x_t + b (B, G N).
        hidden, memory: h_{t−1} (B, N), and R_{t−1} (B, N, N) or None.
        w_hh, norms, activation, eta, epsilon: See `rum`.
        keep: Zoneout: None, a mask (B, N), or the probability ().

    Returns:
        h_t (B, N), R_t (B, N, N) or None, and cos θ_t (B, 1).
    """
    size = hidden.shape[-1]

    def normalize(vector: Tensor, which: int) -> Tensor:
        if norms is None:
            return vector
        return F.layer_norm(vector, (size,), norms[which, 0], norms[which, 1], epsilon)

    vector = parts[..., len(w_hh) :]
    target, *gate = (parts[..., : len(w_hh)] + F.linear(hidden, w_hh)).split(size, dim=-1)
    candidate, memory, cosine = associate(embed(vector), normalize(target, 0), hidden, memory)
    normalized_gate = normalize(gate[0], 1) if gate else None
    new = update(normalize(candidate, 2), normalized_gate, hidden, activation, eta)
    return new if keep is None else zoneout(new, hidden, keep), memory, cosine


def rum(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor,
    h0: Tensor,
    memory: Tensor | None,
    norms: Tensor | None,
    keep: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    activation: str,
    eta: float | None,
    epsilon: float,
    product_dtype: torch.dtype | None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Run RUM step by step; see `gyral.ops.rum.rum`. `product_dtype` is the dtype of autocast, for kernels."""
    state: tuple[Tensor, ...] = (h0,)
    initial: tuple[Tensor, ...] = (torch.zeros_like(h0),)
    if memory is not None:
        identity = torch.eye(memory.shape[-1], dtype=memory.dtype, device=memory.device)
        state, initial = (h0, memory), (*initial, identity.expand_as(memory))

    def one_step(values: tuple[Tensor, Tensor | None], state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        parts, mask = values
        old, *rest = state
        old_memory = rest[0] if rest else None
        kept = keep if mask is None else mask
        new, memory, cosine = step(
            parts, w_hh, old, old_memory, norms, kept, activation=activation, eta=eta, epsilon=epsilon
        )
        return torch.cat((new, cosine.to(new.dtype)), dim=1), (new,) if memory is None else (new, memory)

    mask, _ = split_keep(keep)
    outputs, final = scan(one_step, (F.linear(x, w_ih, b), mask), state, lengths, starts, initial)
    return outputs[..., :-1], final[0], None if memory is None else final[1], outputs[..., -1]
