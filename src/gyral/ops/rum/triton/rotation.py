"""The rotation of RUM in a form that stays accurate at every angle, and its gradient.

The rotation is I + [u w] C [u w]ᵀ, u = ε̃/‖ε̃‖, v = τ/‖τ‖, c = u·v, with a 2 × 2 matrix C:

* c ≥ −½: w = v, s = 1/(1 + c), C = [[−s, −s], [2 − s, −s]], which needs no component of v orthogonal to u;
* c < −½: w = r/‖r‖, r the part of v orthogonal to u, C = [[c − 1, −‖r‖], [‖r‖, c − 1]]. This is the form of
  `gyral.ops.rotation` with a unit vector instead of r, so that only the gradient itself grows as the angle approaches
  π.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from gyral.ops.rum.triton.rowwise import dot, inverse_norm

SMALLEST_SINE = tl.constexpr(8 * torch.finfo(torch.float32).eps)  # below it two vectors are opposite


class Rotation(NamedTuple):
    """A rotation I + [u w] C [u w]ᵀ inside a kernel, with values for its gradient: vectors (K, N), scalars (K, 1)."""

    u: Any
    v: Any
    w: Any
    c11: Any
    c12: Any
    c21: Any
    c22: Any
    overlap: Any
    sine: Any
    is_obtuse: Any
    is_opposite: Any
    inverse_embedded: Any
    inverse_target: Any
    cosine: Any


@triton.jit
def rotation_between(target, embedded, columns, size: tl.constexpr):
    """Return the rotation from `embedded` to `target`, both (K, N)."""
    inverse_embedded = inverse_norm(embedded)
    inverse_target = inverse_norm(target)
    both = (inverse_embedded > 0) & (inverse_target > 0)
    inverse_embedded = tl.where(both, inverse_embedded, 0.0)
    inverse_target = tl.where(both, inverse_target, 0.0)
    u = embedded * inverse_embedded
    v = target * inverse_target
    c = dot(u, v)

    is_obtuse = c < -0.5
    is_opposite = c < -2.0  # False everywhere until an obtuse angle is found
    w = v
    sine = tl.full(c.shape, 1.0, tl.float32)
    if tl.min(c) < -0.5:
        r = v - c * u
        r -= dot(u, r) * u
        sine = tl.sqrt_rn(dot(r, r))
        is_opposite = is_obtuse & (sine < SMALLEST_SINE)
        # the plane is undefined: use that of the axis of u's smallest coordinate, orthogonalized
        smallest = tl.argmin(tl.where((columns < size)[None, :], tl.abs(u), float("inf")), axis=1, keep_dims=True)
        axis = tl.where(columns[None, :] == smallest, 1.0, 0.0)
        axis -= dot(axis, u) * u
        r = tl.where(is_opposite, axis, r)
        w = tl.where(is_obtuse, r * inverse_norm(r), v)
        sine = tl.where(is_opposite, SMALLEST_SINE, tl.where(is_obtuse, sine, 1.0))
    s = 1.0 / (1.0 + tl.where(is_obtuse, 0.0, c))
    c11 = tl.where(is_obtuse, c - 1.0, -s)
    c12 = tl.where(is_obtuse, -sine, -s)
    c21 = tl.where(is_obtuse, sine, 2.0 - s)
    c22 = c11
    cosine = tl.where(both, c, 1.0)
    return Rotation(
        u, v, w, c11, c12, c21, c22, c, sine, is_obtuse, is_opposite, inverse_embedded, inverse_target, cosine
    )


@triton.jit
def rotation_backward(du, dw, dc11, dc12, dc21, dc22, rotation):
    """Return the gradients of `embedded` and `target`, given those of u, w and C."""
    u, v, w, c, sine = rotation.u, rotation.v, rotation.w, rotation.overlap, rotation.sine
    dc = rotation.c22 * rotation.c22 * (dc11 + dc12 + dc21 + dc22)
    du_all = du + dc * v
    dv = dw + dc * u
    if tl.min(c) < -0.5:
        # a change of u or v within their plane changes only the angle, one orthogonal to it only the plane;
        # if u and v are opposite, only u determines the plane
        d_angle = c * (dc21 - dc12) - sine * (dc11 + dc22)
        du_out = du - dot(w, du) * w
        dv_out = (dw - dot(u, dw) * u - dot(w, dw) * w) / sine
        du_obtuse = tl.where(rotation.is_opposite, du, du_out - c * dv_out - d_angle * w)
        dv_obtuse = tl.where(rotation.is_opposite, 0.0, dv_out + d_angle * (c * w - sine * u))
        du_all = tl.where(rotation.is_obtuse, du_obtuse, du_all)
        dv = tl.where(rotation.is_obtuse, dv_obtuse, dv)
    dembedded = rotation.inverse_embedded * (du_all - dot(u, du_all) * u)
    return dembedded, rotation.inverse_target * (dv - dot(v, dv) * v)
