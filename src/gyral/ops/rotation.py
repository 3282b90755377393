"""Rotations in the plane of two vectors, applied without computing matrices.

`Rotation(a, b)` rotates span(a, b) by the angle from a to b and does not change the orthogonal complement
(Dangovski et al., "Rotational Unit of Memory", TACL 2019, section 3). With u = a/‖a‖, v = b/‖b‖, c = u·v and
r = v − c·u it is the rank-two update

    Rotation(a, b) = I + p uᵀ + q rᵀ,   p = r − (1 − c) u,   q = −u − κ r,   κ = (1 − c)/‖r‖²

where κ = 1/(1 + c) if c ≥ 0. r is orthogonalized once more against u, and κ is taken from ‖r‖² for c < 0,
because the textbook forms lose all precision either at angle 0 (division by the sine) or towards π (division by 1 + c).
"""

from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from gyral.core import compat
from gyral.ops.autograd import differentiable_by, differentiate
from gyral.ops.compiler import is_exporting_to_onnx


class Direction(NamedTuple):
    """Unit vectors `unit` (…, N), zero for zero vectors, and the mask `nonzero` (…, 1), False for these."""

    unit: Tensor
    nonzero: Tensor


class Plane(NamedTuple):
    """The rotation I + p uᵀ + q rᵀ: `u` and `r` (…, N), the `cosine` of its angle, 1 − cosine and κ (…, 1)."""

    u: Tensor
    r: Tensor
    cosine: Tensor
    versine: Tensor
    kappa: Tensor


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products (…, 1) of the rows of a and b (…, N)."""
    return (a * b).sum(-1, keepdim=True)


def direction(vector: Tensor, where: Tensor | None = None) -> Direction:
    """Normalize `vector` (…, N); the unit vectors of float16 and bfloat16 are float32, and with them all that follows.

    A vector counts as zero if its squared norm is below the smallest normal number or overflows, or if the mask `where`
    (…, 1) is False; its gradient is then zero.
    """
    vector = vector.to(torch.promote_types(vector.dtype, torch.float32))
    # multiply by the reciprocal, and mask at shape (…, 1): a division or a mask over (…, N) takes several times as long
    with torch.no_grad():
        squared = dot(vector, vector)
        is_normal = squared > torch.finfo(vector.dtype).tiny
        squared = torch.where(is_normal if where is None else is_normal & where, squared, torch.inf)
        nonzero, inverse = squared < torch.inf, squared.rsqrt()
    scaled = vector * inverse
    if is_exporting_to_onnx():  # which has no derivatives
        return Direction(scaled, nonzero)
    # the derivative of ‖v‖⁻¹ is of the size ‖v‖⁻², and overflows long before that of v/‖v‖: differentiate at norm 1
    return Direction(scaled * torch.where(nonzero, dot(scaled, scaled), 1.0).rsqrt(), nonzero)


@torch.no_grad()
def perpendicular(unit: Tensor) -> Tensor:
    """Return a unit vector orthogonal to each `unit` (…, N ≥ 2): its smallest coordinate's axis, orthogonalized."""
    smallest = unit.abs().argmin(dim=-1, keepdim=True)
    # not scatter_, for which torch.func.vmap has no rule
    axis = (torch.arange(unit.shape[-1], device=unit.device) == smallest).to(unit.dtype)
    axis = axis - unit * unit.gather(-1, smallest)
    return axis / torch.linalg.vector_norm(axis, dim=-1, keepdim=True)


def plane(source: Direction, goal: Tensor, fallback: Tensor) -> Plane:
    """Return the rotation from the direction `source` to that of the vector `goal`, both (…, N).

    If either is zero, the rotation is the identity, and both gradients are zero. If the two are opposite to within 8
    machine epsilons, the plane is undefined; the function then uses span(source, `fallback`), where `fallback` (…, N)
    is a unit vector orthogonal to `source`, such as that of `perpendicular`, and constant in the gradient.
    """
    u = source.unit
    v, both = direction(goal, where=source.nonzero)
    overlap = dot(u, v)
    r = v - overlap * u
    r = r - dot(u, r) * u
    squared = dot(r, r)
    cosine = torch.where(both, overlap, 1.0)

    obtuse = cosine < 0
    smallest_sine = 8 * torch.finfo(u.dtype).eps
    opposite = obtuse & (squared < smallest_sine**2)
    r = torch.where(opposite, smallest_sine * fallback, r)
    squared = torch.where(opposite, smallest_sine**2, squared)

    versine = 1 - cosine
    kappa = torch.where(obtuse, versine, 1.0) / torch.where(obtuse, squared, 1 + cosine)
    return Plane(u, r, cosine, versine, kappa)


def apply(rotation: Plane, x: Tensor) -> Tensor:
    """Return the rotated vectors `x` (…, N), in their dtype, in O(N) operations per vector."""
    dtype, x = x.dtype, x.to(rotation.u.dtype)
    along_u, along_r = dot(rotation.u, x), dot(rotation.r, x)
    rotated = torch.addcmul(x, rotation.r, along_u - rotation.kappa * along_r)
    return torch.addcmul(rotated, rotation.u, -rotation.versine * along_u - along_r).to(dtype)


def apply_by_reflections(source: Direction, goal: Tensor, fallback: Tensor, x: Tensor) -> Tensor:
    """Return the same as `apply` with the rotation of `plane`, in fewer operators and without derivatives.

    A rotation from u to v is the reflection that changes the sign of u, and after it the one that changes the sign of
    the bisector u + v. If one of the directions is zero, both reflections are the same one, or none.
    """
    u, v = source.unit, direction(goal, where=source.nonzero).unit
    bisector = u + v
    squared = dot(bisector, bisector)
    is_small = squared < (8 * torch.finfo(u.dtype).eps) ** 2
    bisector = torch.where(is_small & source.nonzero, fallback, bisector)
    squared = torch.where(is_small, 1.0, squared)
    dtype, x = x.dtype, x.to(u.dtype)
    x = x - 2 * dot(u, x) * u
    return (x - 2 * dot(bisector, x) / squared * bisector).to(dtype)


def factors(rotation: Plane) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return p, u, q, r (…, N) such that the rotation is I + p uᵀ + q rᵀ."""
    p = torch.addcmul(rotation.r, -rotation.versine, rotation.u)
    q = torch.addcmul(-rotation.u, -rotation.kappa, rotation.r)
    return p, rotation.u, q, rotation.r


def rotate(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Return Rotation(a, b) x for each row of a, b and x (…, N), N ≥ 2.

    The rotation is the identity where a or b is zero. Values and gradients are finite at every angle, including 0 and
    π; at π the plane is that of a and the axis of its smallest coordinate. The inverse is `rotate(b, a, x)`, except at
    π, where the rotation is its own inverse.
    """
    source = direction(a)
    return apply(plane(source, b, perpendicular(source.unit)), x)


def matrix(a: Tensor, b: Tensor) -> Tensor:
    """Return Rotation(a, b) (…, N, N) for a and b (…, N), the matrix that `rotate` applies."""
    source = direction(a)
    p, u, q, r = factors(plane(source, b, perpendicular(source.unit)))
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)
    return identity + p[..., :, None] * u[..., None, :] + q[..., :, None] * r[..., None, :]


def _by_logarithm(skew: Tensor, exponent: float) -> Tensor:
    """As `_RotationPower`, in functions of torch with the right first and second derivative.

    exp(λA) for the logarithm A with tanh(A/2) = S. The value of A has no derivative, but two steps of Newton's
    method from it, with a fixed slope, have those of the solution, because each removes one order of the error.
    """
    identity = torch.eye(skew.shape[-1], dtype=skew.dtype, device=skew.device)
    with torch.no_grad():
        half_angles, vectors = _half_angles(skew)
        logarithm = ((vectors * (2j * half_angles)[..., None, :]) @ vectors.mH).real
        difference = half_angles[..., :, None] - half_angles[..., None, :]
        cosines = half_angles.cos()
        slope = 2 * cosines[..., :, None] * cosines[..., None, :] / torch.sinc(difference / torch.pi)
    for _ in range(2):
        rotation = torch.linalg.matrix_exp(logarithm)
        error = skew - torch.linalg.solve(rotation + identity, rotation - identity, left=False)
        logarithm = logarithm + (vectors @ (slope * (vectors.mH @ error.to(vectors.dtype) @ vectors)) @ vectors.mH).real
    return torch.linalg.matrix_exp(exponent * logarithm)


def _half_angles(skew: Tensor) -> tuple[Tensor, Tensor]:
    """Return φ (…, N) and unitary V (…, N, N) with S = V diag(i tan φ) Vᴴ for skew-symmetric S (…, N, N)."""
    eigenvalues, vectors = torch.linalg.eigh(torch.complex(torch.zeros_like(skew), -skew))
    return torch.atan(eigenvalues), vectors


class _RotationPower(torch.autograd.Function):
    """V diag(e^{2iλφ}) Vᴴ for S = V diag(i tan φ) Vᴴ, and its derivative by the Daleckii–Krein formula.

    torch's own derivative of `eigh` divides by differences of eigenvalues, and those of a rotation are mostly equal
    (its fixed space); the divided differences below stay finite: with t = tan φ and f = e^{2iλφ},
    (f_i − f_j)/(t_i − t_j) = 2i e^{iλ(φ_i+φ_j)} cos φ_i cos φ_j · sin(λδ)/sin δ,  δ = φ_i − φ_j.
    """

    @staticmethod
    def forward(ctx, skew: Tensor, exponent: float) -> Tensor:
        half_angles, vectors = _half_angles(skew)
        ctx.save_for_backward(skew, half_angles, vectors)
        ctx.exponent = exponent
        values = torch.polar(torch.ones_like(half_angles), 2 * exponent * half_angles)
        return ((vectors * values[..., None, :]) @ vectors.mH).real

    @staticmethod
    def _second(ctx, gradient: Tensor) -> tuple[Tensor | None, None]:
        """Return the gradient in a form that can be differentiated."""
        power = partial(_by_logarithm, exponent=ctx.exponent)
        return differentiate(lambda skew: [power(skew)], ctx.saved_tensors[:1], [gradient])[0], None

    @staticmethod
    @differentiable_by(_second)
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:
        _, half_angles, vectors = ctx.saved_tensors
        difference = half_angles[..., :, None] - half_angles[..., None, :]
        # sin(λδ)/sin δ as a quotient of sincs, which torch defines at δ = 0 as well
        quotient = ctx.exponent * torch.sinc(ctx.exponent * difference / torch.pi) / torch.sinc(difference / torch.pi)
        # e^{iλ(φ_i+φ_j)} cos φ_i cos φ_j is a product, of which each side takes one factor: cheaper than N × N of them
        factor = torch.polar(half_angles.cos(), ctx.exponent * half_angles)[..., None, :]
        inner = (vectors * factor).mH @ gradient.to(vectors.dtype) @ (vectors * factor.conj())
        return 2 * (vectors @ (quotient * inner) @ vectors.mH).real, None


def power(rotation: Tensor, exponent: float) -> Tensor:
    """Return rotation^exponent = exp(exponent · log rotation) for orthogonal matrices `rotation` (…, N, N).

    Multiplies the angle of every plane by the exponent. The principal logarithm exists only without the eigenvalue −1
    (an angle of π). O(N³) operations per matrix, about 50 times the time of a matrix product. A matrix that has drifted
    from orthogonality is corrected first, by the skew part of its Cayley transform. Differentiable twice; matrices of
    float16 and bfloat16 are computed with in float32.

    Raises:
        torch.linalg.LinAlgError: A matrix has exactly the eigenvalue −1.
    """
    dtype, rotation = rotation.dtype, rotation.to(torch.promote_types(rotation.dtype, torch.float32))
    identity = torch.eye(rotation.shape[-1], dtype=rotation.dtype, device=rotation.device)
    # the Cayley transform is I - 2 (R + I)⁻¹
    inverse = torch.linalg.inv(rotation + identity)
    skew = inverse.mT - inverse
    if compat.transform_is_active():  # which do not support `_RotationPower`
        return _by_logarithm(skew, exponent).to(dtype)
    powered: Tensor = _RotationPower.apply(skew, exponent)
    return powered.to(dtype)
