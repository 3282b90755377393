"""The rotation of RUM in a form that stays accurate at every angle, and its gradient.

The rotation is I + [u w] C [u w]ᵀ, u = ε̃/‖ε̃‖, v = τ/‖τ‖, c = u·v, with a 2 × 2 matrix C:

* c ≥ −½: w = v, s = 1/(1 + c), C = [[−s, −s], [2 − s, −s]], which needs no component of v orthogonal to u;
* c < −½: w = r/‖r‖, r the part of v orthogonal to u, C = [[c − 1, −‖r‖], [‖r‖, c − 1]]. This is the form of
  `gyral.ops.rotation` with a unit vector instead of r, so that only the gradient itself grows as the angle approaches
  π.

All inner products of ε̃, τ and h are sums of one reduction, because a reduction is what takes long: the threads of a
program wait for each other. The others follow from them.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from gyral.ops.triton.rows import inverse_root, smallest, totals_2, totals_5

SMALLEST_SINE = tl.constexpr(8 * torch.finfo(torch.float32).eps)  # below it two vectors are opposite


class Rotation(NamedTuple):
    """A rotation I + [u w] C [u w]ᵀ inside a kernel, with values for its gradient: rows, and their scalars.

    Attributes:
        u, v, w, c11, c12, c21: See above; C₂₂ is C₁₁.
        h_u, h_w: u·h and w·h.
        along_u, along_w: C (h_u, h_w): the rotated h is h + along_u u + along_w w.
        overlap: c; 0 where a vector is zero.
        sine: ‖r‖, and 1 where c ≥ −½.
        is_obtuse, is_opposite: whether c < −½, and whether ‖r‖ is too small to divide by it.
        inverse_embedded, inverse_target: 1/‖ε̃‖ and 1/‖τ‖; both are 0 where a vector is zero.
        cosine: c; 1 where a vector is zero.
    """

    u: Any
    v: Any
    w: Any
    c11: Any
    c12: Any
    c21: Any
    h_u: Any
    h_w: Any
    along_u: Any
    along_w: Any
    overlap: Any
    sine: Any
    is_obtuse: Any
    is_opposite: Any
    inverse_embedded: Any
    inverse_target: Any
    cosine: Any


@triton.jit
def _sums_and_smallest(ur, rr, rh, u, h, at, other_ur, other_rr, other_rh, other_u, other_h, other_at):
    """Add the first three values; of the others take those with the smallest |u|, and the first of several."""
    smaller = tl.abs(other_u) < tl.abs(u)
    smaller = smaller | ((tl.abs(other_u) == tl.abs(u)) & (other_at < at))
    u, h, at = tl.where(smaller, other_u, u), tl.where(smaller, other_h, h), tl.where(smaller, other_at, at)
    return ur + other_ur, rr + other_rr, rh + other_rh, u, h, at


@triton.jit
def rotation_between(target, embedded, h, columns, size: tl.constexpr):
    """Return the rotation from `embedded` to `target`, which is to rotate h; all are rows."""
    ee, tt, et, eh, th = totals_5(embedded * embedded, target * target, embedded * target, embedded * h, target * h)
    inverse_embedded, inverse_target = inverse_root(ee), inverse_root(tt)
    both = (inverse_embedded > 0) & (inverse_target > 0)
    inverse_embedded = tl.where(both, inverse_embedded, 0.0)
    inverse_target = tl.where(both, inverse_target, 0.0)
    u, v = embedded * inverse_embedded, target * inverse_target
    c, h_u, h_w = et * inverse_embedded * inverse_target, eh * inverse_embedded, th * inverse_target

    is_obtuse = c < -0.5
    is_opposite = c < -2.0  # False everywhere until an obtuse angle is found
    w = v
    sine = tl.zeros_like(c) + 1.0
    if smallest(c) < -0.5:
        r = v - c * u
        at = columns + tl.zeros(r.shape, tl.int32)
        coordinates = tl.where(columns < size, u, float("inf"))
        ur, rr, rh, axis_u, axis_h, axis_at = tl.reduce(
            (u * r, r * r, r * h, coordinates, h, at), len(r.shape) - 1, _sums_and_smallest, keep_dims=len(r.shape) > 1
        )
        r -= ur * u  # rounding errors of c
        squared = tl.maximum(rr - ur * ur, 0.0)
        is_opposite = is_obtuse & (squared < SMALLEST_SINE * SMALLEST_SINE)
        # the plane is undefined: use that of the axis of u's smallest coordinate, orthogonalized
        r = tl.where(is_opposite, tl.where(at == axis_at, 1.0, 0.0) - axis_u * u, r)
        inverse = inverse_root(tl.where(is_opposite, 1.0 - axis_u * axis_u, squared))
        w = tl.where(is_obtuse, r * inverse, v)
        r_h = tl.where(is_opposite, axis_h - axis_u * h_u, rh - ur * h_u)
        h_w = tl.where(is_obtuse, r_h * inverse, h_w)
        sine = tl.where(is_opposite, SMALLEST_SINE, tl.where(is_obtuse, tl.sqrt_rn(squared), 1.0))
    s = 1.0 / (1.0 + tl.where(is_obtuse, 0.0, c))
    c11 = tl.where(is_obtuse, c - 1.0, -s)
    c12 = tl.where(is_obtuse, -sine, -s)
    c21 = tl.where(is_obtuse, sine, 2.0 - s)
    along_u, along_w = c11 * h_u + c12 * h_w, c21 * h_u + c11 * h_w
    return Rotation(
        u, v, w, c11, c12, c21, h_u, h_w, along_u, along_w, c, sine, is_obtuse, is_opposite,
        inverse_embedded, inverse_target, tl.where(both, c, 1.0),
    )  # fmt: skip


@triton.jit
def rotation_backward(du, dw, du_u, du_w, dw_u, dw_w, dc11, dc12, dc21, dc22, rotation):
    """Return the gradients of `embedded` and `target`, given those of u, w and C, and u·du, w·du, u·dw and w·dw.

    du and dw must be gradients of a function of u and w through E C Eᵀ alone, E = [u w].
    """
    u, v, w, c, c11 = rotation.u, rotation.v, rotation.w, rotation.overlap, rotation.c11
    dc = c11 * c11 * (dc11 + dc12 + dc21 + dc22)
    du_all, dv = du + dc * v, dw + dc * u
    along_u, along_v = du_u + dc * c, dw_w + dc * c  # their inner products with u and v
    if smallest(c) < -0.5:
        # a change of u or v within their plane changes only the angle, one orthogonal to it only the plane;
        # if u and v are opposite, only u determines the plane
        d_angle = c * (dc21 - dc12) - rotation.sine * (dc11 + dc22)
        dv_out = (dw - dw_u * u - dw_w * w) / rotation.sine
        du_obtuse = tl.where(rotation.is_opposite, du, du - du_w * w - c * dv_out - d_angle * w)
        dv_obtuse = tl.where(rotation.is_opposite, 0.0, dv_out + d_angle * (c * w - rotation.sine * u))
        du_all = tl.where(rotation.is_obtuse, du_obtuse, du_all)
        dv = tl.where(rotation.is_obtuse, dv_obtuse, dv)
        along_u = tl.where(rotation.is_obtuse, du_u, along_u)
        along_v = tl.where(rotation.is_obtuse, 0.0, along_v)
    dembedded = rotation.inverse_embedded * (du_all - along_u * u)
    return dembedded, rotation.inverse_target * (dv - along_v * v)


@triton.jit
def apply(rotation, h):
    """Return the rotated h, that of `rotation_between`."""
    return h + rotation.along_u * rotation.u + rotation.along_w * rotation.w


@triton.jit
def apply_backward(d, h, rotation):
    """Return the gradients of `embedded`, `target` and h, given that of the rotated h."""
    u, w, h_u, h_w = rotation.u, rotation.w, rotation.h_u, rotation.h_w
    d_u, d_w = totals_2(u * d, w * d)
    to_u, to_w = rotation.c11 * d_u + rotation.c21 * d_w, rotation.c12 * d_u + rotation.c11 * d_w
    du, dw = rotation.along_u * d + to_u * h, rotation.along_w * d + to_w * h
    du_u, du_w = rotation.along_u * d_u + to_u * h_u, rotation.along_u * d_w + to_u * h_w
    dw_u, dw_w = rotation.along_w * d_u + to_w * h_u, rotation.along_w * d_w + to_w * h_w
    dembedded, dtarget = rotation_backward(
        du, dw, du_u, du_w, dw_u, dw_w, h_u * d_u, h_w * d_u, h_u * d_w, h_w * d_w, rotation
    )
    return dembedded, dtarget, d + to_u * u + to_w * w
