"""Rotations against the textbook form: projection out of the plane plus a 2-D rotation in it, in float64."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from gyral.ops import rotation
from tests.helpers.loops import for_each

SIZES = (2, 3, 50, pytest.param(500, marks=pytest.mark.slow), 4096)
FROM_ZERO = (0.0, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.5, 1.0, math.pi / 2 - 1e-3, math.pi / 2)
TO_PI = (math.pi / 2 + 1e-3, 2.0, 3.0, math.pi - 1e-2, math.pi - 1e-3, math.pi - 1e-4, math.pi - 1e-5)
ANGLES = FROM_ZERO + TO_PI
DTYPES = (torch.float32, torch.float64)
NORM_ERROR = {torch.float32: 1e-5, torch.float64: 1e-12}


def rows_for(size: int) -> int:
    return 3 if size > 1000 else 8


def random_plane(rows: int, size: int) -> tuple[Tensor, Tensor]:
    """Draw orthonormal pairs (rows, size), float64."""
    pair, _ = torch.linalg.qr(torch.randn(rows, size, 2, dtype=torch.float64))
    return pair[..., 0], pair[..., 1]


def at_angle(first: Tensor, second: Tensor, angle: float) -> tuple[Tensor, Tensor]:
    """Return vectors a, b of assorted norms in span(first, second), `angle` apart."""
    norms = torch.logspace(-2, 2, first.shape[0], dtype=torch.float64).unsqueeze(1)
    return first * norms, (math.cos(angle) * first + math.sin(angle) * second) * norms.flip(0)


def textbook(first: Tensor, second: Tensor, angle: float | Tensor, x: Tensor) -> Tensor:
    """SubCell x by `angle` in the plane of an orthonormal pair: the part outside stays, the 2-D coordinates turn."""
    along, across = (first * x).sum(-1, keepdim=True), (second * x).sum(-1, keepdim=True)
    angle = torch.as_tensor(angle, dtype=x.dtype)
    cosine, sine = angle.cos(), angle.sin()
    outside = x - along * first - across * second
    return outside + (cosine * along - sine * across) * first + (sine * along + cosine * across) * second


def textbook_of(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """Textbook rotation from a to b as they are: in float32, rounding has moved them off the angle asked for."""
    a, b, x = a.double(), b.double(), x.double()
    first = a / a.norm(dim=-1, keepdim=True)
    goal = b / b.norm(dim=-1, keepdim=True)
    second = goal - (first * goal).sum(-1, keepdim=True) * first
    second = second - (first * second).sum(-1, keepdim=True) * first
    sine = second.norm(dim=-1, keepdim=True)
    angle = torch.atan2(sine, (first * goal).sum(-1, keepdim=True))
    # parallel to the last bit: any plane will do, and the division must not
    second = torch.where(sine > 0, second / sine.clamp(min=1e-300), 0.0)
    return textbook(first, second, angle, x)


def relative_norm_error(rotated: Tensor, x: Tensor) -> float:
    norms = x.double().norm(dim=-1)
    return ((rotated.double().norm(dim=-1) - norms).abs() / norms).max().item()


def relative_error(value: Tensor, expected: Tensor) -> float:
    difference = (value.double() - expected).norm(dim=-1)
    return (difference / expected.norm(dim=-1)).max().item()


@for_each("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_equals_the_textbook_rotation_at_every_angle(size: int, dtype: torch.dtype) -> None:
    rows = rows_for(size)
    x = torch.randn(rows, size, dtype=torch.float64).to(dtype)
    for angle in ANGLES:
        first, second = random_plane(rows, size)
        a, b = (vector.to(dtype) for vector in at_angle(first, second, angle))
        rotated = rotation.rotate(a, b, x)
        assert rotated.isfinite().all(), f"{angle=}"
        assert relative_norm_error(rotated, x) <= NORM_ERROR[dtype], f"{angle=}"

        expected = textbook_of(a, b, x) if dtype == torch.float32 else textbook(first, second, angle, x)
        # near π one rounding of a vector turns the plane by eps/(π − θ): no algorithm can do better than that
        condition = 1 + 1 / (math.pi - angle)
        assert relative_error(rotated, expected) <= 8 * torch.finfo(dtype).eps * condition, f"{angle=}"


@for_each("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_values_and_gradients_are_finite_everywhere(size: int, dtype: torch.dtype) -> None:
    rows = rows_for(size)
    beyond = (math.pi - 1e-6, math.pi - 1e-7, math.pi - 1e-8, math.pi)
    for angle in ANGLES + beyond:
        pair = at_angle(*random_plane(rows, size), angle)
        a, b = (vector.to(dtype).requires_grad_() for vector in pair)
        x = torch.randn(rows, size, dtype=dtype, requires_grad=True)
        rotated = rotation.rotate(a, b, x)
        gradients = torch.autograd.grad(rotated, (a, b, x), torch.randn_like(rotated))
        assert all(tensor.isfinite().all() for tensor in (rotated, *gradients)), f"{angle=}"
        assert relative_norm_error(rotated.detach(), x.detach()) <= 1e-5, f"{angle=}"
        assert all(gradient.count_nonzero() > 0 for gradient in gradients[:2]), f"{angle=}"


@for_each("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_exact_opposites_turn_in_the_documented_plane(size: int, dtype: torch.dtype) -> None:
    a = torch.randn(rows_for(size), size, dtype=dtype)
    x = torch.randn_like(a)
    unit = a.double() / a.double().norm(dim=-1, keepdim=True)
    axis = torch.nn.functional.one_hot(unit.abs().argmin(-1), size).double()
    axis = axis - (axis * unit).sum(-1, keepdim=True) * unit
    axis = axis / axis.norm(dim=-1, keepdim=True)
    for scale in (-1.0, -4.0):
        rotated = rotation.rotate(a, scale * a, x)
        expected = textbook(unit, axis, math.pi, x.double())
        assert relative_norm_error(rotated, x) <= NORM_ERROR[dtype]
        assert relative_error(rotated, expected) <= 64 * torch.finfo(dtype).eps
        # a half turn is its own inverse
        assert relative_error(rotation.rotate(a, scale * a, rotated), x.double()) <= 128 * torch.finfo(dtype).eps


@for_each("dtype", DTYPES)
def test_two_reflections_are_the_same_rotation(dtype: torch.dtype) -> None:
    rows, size = 16, 7
    x = torch.randn(rows, size, dtype=dtype)
    for angle in (*ANGLES, math.pi):
        a, b = (vector.to(dtype) for vector in at_angle(*random_plane(rows, size), angle))
        a, b = a.clone(), -2 * a if angle == math.pi else b.clone()
        a[0] = b[1] = 0.0
        a[2], b[2] = 0.0, 0.0
        source = rotation.direction(a)
        reflected = rotation.apply_by_reflections(source, b, rotation.perpendicular(source.unit), x)
        condition = 1 + (0 if angle == math.pi else 1 / (math.pi - angle))
        assert relative_error(reflected, rotation.rotate(a, b, x)) <= 16 * torch.finfo(dtype).eps * condition, angle


@for_each("dtype", DTYPES)
@for_each("zero", ["a", "b", "both"])
@for_each("tiny", [0.0, 1e-30])
def test_zero_vectors_give_the_identity(zero: str, tiny: float, dtype: torch.dtype) -> None:
    if tiny and dtype == torch.float64:
        tiny = 1e-170  # its square underflows in float64, too
    a = torch.randn(4, 7, dtype=dtype)
    b = torch.randn(4, 7, dtype=dtype)
    # one row in two, so that neighbours show whether the mask is a row's own
    a[::2] *= tiny if zero != "b" else 1.0
    b[::2] *= tiny if zero != "a" else 1.0
    a.requires_grad_(), b.requires_grad_()
    x = torch.randn(4, 7, dtype=dtype, requires_grad=True)
    rotated = rotation.rotate(a, b, x)
    cotangent = torch.randn_like(rotated)
    grad_a, grad_b, grad_x = torch.autograd.grad(rotated, (a, b, x), cotangent)
    assert torch.equal(rotated[::2], x[::2])
    assert torch.equal(grad_x[::2], cotangent[::2])
    assert grad_a[::2].count_nonzero() == 0
    assert grad_b[::2].count_nonzero() == 0
    with torch.no_grad():
        expected = textbook_of(a[1::2], b[1::2], x[1::2])
    assert relative_error(rotated[1::2].detach(), expected) <= 64 * torch.finfo(dtype).eps
    assert grad_a[1::2].abs().max() > 0
    assert grad_b[1::2].abs().max() > 0


@pytest.mark.parametrize("size", SIZES)
def test_turns_the_direction_of_a_into_that_of_b(size: int) -> None:
    for angle in ANGLES:
        a, b = at_angle(*random_plane(rows_for(size), size), angle)
        unit_a, unit_b = a / a.norm(dim=-1, keepdim=True), b / b.norm(dim=-1, keepdim=True)
        assert relative_error(rotation.rotate(a, b, unit_a), unit_b) <= 1e-12, f"{angle=}"


@pytest.mark.parametrize("size", SIZES)
def test_swapping_the_vectors_inverts(size: int) -> None:
    x = torch.randn(rows_for(size), size, dtype=torch.float64)
    for angle in ANGLES:
        a, b = at_angle(*random_plane(rows_for(size), size), angle)
        back = rotation.rotate(b, a, rotation.rotate(a, b, x))
        assert relative_error(back, x) <= 1e-14 * (1 + 1 / (math.pi - angle)), f"{angle=}"


@for_each("size", [3, 50, 500])
def test_leaves_the_orthogonal_complement_alone(size: int) -> None:
    first, second = random_plane(8, size)
    x = torch.randn(8, size, dtype=torch.float64)
    outside = x - (first * x).sum(-1, keepdim=True) * first - (second * x).sum(-1, keepdim=True) * second
    for angle in ANGLES:
        a, b = at_angle(first, second, angle)
        assert relative_error(rotation.rotate(a, b, outside), outside) <= 1e-14 * (1 + 1 / (math.pi - angle))


@for_each("dtype", DTYPES)
def test_lengths_of_the_vectors_do_not_matter(dtype: torch.dtype) -> None:
    a, b, x = torch.randn(3, 8, 20, dtype=dtype)
    expected = rotation.rotate(a, b, x)
    for scale_a, scale_b in ((1e-15, 1e15), (1e15, 1e-15), (1e-18, 1e-18), (1e18, 1e18), (3.0, 0.7)):
        scaled = rotation.rotate(scale_a * a, scale_b * b, x)
        assert relative_error(scaled, expected.double()) <= 64 * torch.finfo(dtype).eps


def test_rotations_by_vectors_whose_square_overflows_keep_the_norm() -> None:
    small, large = torch.randn(4, 6), 1e20 * torch.randn(4, 6)
    x = torch.randn(4, 6)
    for a, b in ((small, large), (large, small), (large, large.flip(0))):
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        rotated = rotation.rotate(a, b, x)
        assert relative_norm_error(rotated.detach(), x) <= 1e-5
        gradients = torch.autograd.grad(rotated.sum(), (a, b))
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_leading_dimensions_broadcast_as_rows() -> None:
    a, b, x = torch.randn(3, 2, 5, 6, dtype=torch.float64)
    rotated = rotation.rotate(a, b, x)
    for row in range(2):
        for column in range(5):
            alone = rotation.rotate(a[row, column], b[row, column], x[row, column])
            torch.testing.assert_close(rotated[row, column], alone, rtol=0, atol=1e-14)


@for_each("size", [2, 3, 12])
def test_matrix_is_the_same_rotation(size: int) -> None:
    identity = torch.eye(size, dtype=torch.float64)
    for angle in (*ANGLES, math.pi):
        a, b = at_angle(*random_plane(4, size), angle)
        matrix = rotation.matrix(a, b)
        columns = torch.stack([rotation.rotate(a, b, axis.expand_as(a)) for axis in identity], dim=-1)
        torch.testing.assert_close(matrix, columns, rtol=0, atol=1e-13)
        torch.testing.assert_close(matrix.mT @ matrix, identity.expand_as(matrix), rtol=0, atol=1e-12)
        torch.testing.assert_close(torch.linalg.det(matrix), torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-12)
        trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
        expected = torch.full_like(trace, size - 2 + 2 * math.cos(angle))
        torch.testing.assert_close(trace, expected, rtol=0, atol=1e-12)


def test_matrix_of_zero_vectors_is_the_identity() -> None:
    zero, other = torch.zeros(2, 4), torch.randn(2, 4)
    for a, b in ((zero, other), (other, zero), (zero, zero)):
        assert torch.equal(rotation.matrix(a, b), torch.eye(4).expand(2, 4, 4))


def test_factors_are_rank_two_form_of_the_matrix() -> None:
    a, b = torch.randn(2, 5, 7, dtype=torch.float64)
    source = rotation.direction(a)
    p, u, q, r = rotation.factors(rotation.plane(source, b, rotation.perpendicular(source.unit)))
    rank_two = torch.einsum("bi,bj->bij", p, u) + torch.einsum("bi,bj->bij", q, r)
    torch.testing.assert_close(torch.eye(7) + rank_two, rotation.matrix(a, b), rtol=0, atol=1e-14)


@for_each("size", [2, 5])
@for_each("angle", [1e-6, 1e-3, 1.0, math.pi / 2, 2.5, math.pi - 1e-1, math.pi - 1e-2])
def test_gradients(size: int, angle: float) -> None:
    first, second = random_plane(1, size)
    a = 1.3 * first
    b = 0.7 * (math.cos(angle) * first + math.sin(angle) * second)
    x = torch.randn(1, size, dtype=torch.float64)
    inputs = tuple(tensor.clone().requires_grad_() for tensor in (a, b, x))
    # curvature grows as 1/(π − θ)², and the finite difference's own error with it
    curvature = max(1.0, 1 / (math.pi - angle) ** 2)
    assert gradcheck(rotation.rotate, inputs, eps=1e-6, atol=1e-8 * curvature, rtol=1e-6)


def test_gradients_at_angle_zero() -> None:
    a = torch.randn(3, 5, dtype=torch.float64)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    for scale in (1.0, 2.0):
        inputs = (a.clone().requires_grad_(), (scale * a).requires_grad_(), x)
        assert gradcheck(rotation.rotate, inputs, eps=1e-6, atol=1e-7, rtol=1e-6)


@for_each("size", [2, 3, 100])
@for_each("dtype", DTYPES)
def test_perpendicular(size: int, dtype: torch.dtype) -> None:
    unit = rotation.direction(torch.randn(16, size, dtype=dtype)).unit
    unit = torch.cat([unit, torch.eye(size, dtype=dtype), -torch.eye(size, dtype=dtype)]).requires_grad_()
    other = rotation.perpendicular(unit)
    eps = torch.finfo(dtype).eps
    assert not other.requires_grad
    assert (unit * other).sum(-1).abs().max() <= 4 * eps
    assert (other.norm(dim=-1) - 1).abs().max() <= 4 * eps
    assert torch.equal(other, rotation.perpendicular(unit))
    # of the zero vector, which has no direction: still a unit vector, never NaN
    assert rotation.perpendicular(torch.zeros(2, size, dtype=dtype)).norm(dim=-1).eq(1).all()


def test_direction_masks_its_gradient() -> None:
    vector = torch.randn(3, 4, requires_grad=True)
    unit, nonzero = rotation.direction(vector, where=torch.tensor([[True], [False], [True]]))
    (gradient,) = torch.autograd.grad(unit, vector, torch.randn_like(unit))
    assert nonzero.squeeze(1).tolist() == [True, False, True]
    assert unit[1].count_nonzero() == 0
    assert gradient[1].count_nonzero() == 0
    torch.testing.assert_close(unit[[0, 2]].norm(dim=-1), torch.ones(2), rtol=0, atol=1e-6)
    # a direction does not change along itself
    assert (gradient * vector).sum(-1).abs().max() <= 1e-6


def turning_by(angles: Tensor, size: int, basis: Tensor) -> Tensor:
    """Return the (size, size) rotation by `angles` in the planes of consecutive columns of an orthonormal basis."""
    turned = torch.eye(size, dtype=torch.float64)
    for index, angle in enumerate(angles.tolist()):
        block = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
        turned[2 * index : 2 * index + 2, 2 * index : 2 * index + 2] = torch.tensor(block, dtype=torch.float64)
    return basis @ turned @ basis.mT


def random_basis(size: int) -> Tensor:
    return torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))[0]


@for_each("size", [2, 3, 8, 9, 50])
def test_power_multiplies_every_angle(size: int) -> None:
    basis = random_basis(size)
    angles = torch.empty(size // 2, dtype=torch.float64).uniform_(-3.0, 3.0)
    turned = turning_by(angles, size, basis)
    for exponent in (0.0, 0.5, 1.0, -1.0, 0.3, -1.7, 2.0, 3.25):
        expected = turning_by(exponent * angles, size, basis)
        torch.testing.assert_close(rotation.power(turned, exponent), expected, rtol=0, atol=1e-12)


def random_rotations(rows: int, size: int, largest: float = 2.5) -> Tensor:
    """Draw (rows, size, size) rotations without an angle near π."""
    return torch.stack(
        [turning_by(torch.empty(size // 2).uniform_(-largest, largest), size, random_basis(size)) for _ in range(rows)]
    )


@for_each("size", [2, 3, 8, 20])
def test_power_to_integers_composition_and_inverse(size: int) -> None:
    turned = random_rotations(4, size)
    for exponent in (-3, -2, -1, 0, 1, 2, 3, 5):
        expected = torch.linalg.matrix_power(turned, exponent)
        torch.testing.assert_close(rotation.power(turned, float(exponent)), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(rotation.power(turned, -1.0), turned.mT, rtol=0, atol=1e-12)
    half = rotation.power(turned, 0.5)
    torch.testing.assert_close(half @ half, turned, rtol=0, atol=1e-12)
    composed = rotation.power(turned, 0.3) @ rotation.power(turned, 0.45)
    torch.testing.assert_close(composed, rotation.power(turned, 0.75), rtol=0, atol=1e-12)
    # 0.5 leaves every angle inside ±π, so that powers of powers multiply
    torch.testing.assert_close(rotation.power(half, 0.4), rotation.power(turned, 0.2), rtol=0, atol=1e-12)
    identity = torch.eye(size, dtype=torch.float64).expand_as(half)
    torch.testing.assert_close(half.mT @ half, identity, rtol=0, atol=1e-12)


def test_power_of_a_plane_rotation_turns_the_same_plane() -> None:
    first, second = random_plane(4, 10)
    x = torch.randn(4, 10, dtype=torch.float64)
    for angle in (1e-6, 0.4, 1.5, 3.0):
        turned = rotation.matrix(*at_angle(first, second, angle))
        for exponent in (0.5, -0.25, 2.0, 0.9):
            rotated = (rotation.power(turned, exponent) @ x.unsqueeze(-1)).squeeze(-1)
            expected = textbook(first, second, exponent * angle, x)
            torch.testing.assert_close(rotated, expected, rtol=0, atol=1e-12)


def test_power_of_the_identity_is_the_identity() -> None:
    identity = torch.eye(6).expand(2, 6, 6)
    for exponent in (0.5, 1.0, -3.3):
        assert torch.equal(rotation.power(identity, exponent), identity)


def test_power_returns_a_drifted_matrix_to_the_rotations() -> None:
    turned = random_rotations(2, 8)
    drifted = turned + 1e-4 * torch.randn_like(turned)
    half = rotation.power(drifted, 0.5)
    identity = torch.eye(8, dtype=torch.float64).expand_as(half)
    torch.testing.assert_close(half.mT @ half, identity, rtol=0, atol=1e-12)
    torch.testing.assert_close(half, rotation.power(turned, 0.5), rtol=0, atol=2e-3)


def test_power_refuses_a_half_turn() -> None:
    half_turn = torch.diag(torch.tensor([-1.0, -1.0, 1.0])).unsqueeze(0)
    with pytest.raises(torch.linalg.LinAlgError):
        rotation.power(half_turn, 0.5)


@for_each("given", [(2, 0.5), (2, 1.8), (4, -0.7)])
def test_power_gradients(given: tuple[int, float]) -> None:
    size, exponent = given
    identity = torch.eye(size, dtype=torch.float64).expand(2, size, size)
    one_plane = rotation.matrix(*torch.randn(2, 2, size, dtype=torch.float64))
    # identity and a single plane: repeated eigenvalues, where torch's own derivative of eigh is NaN
    for turned in (random_rotations(2, size, largest=2.0), one_plane, identity):
        leaf = turned.clone().requires_grad_()
        assert gradcheck(lambda m: rotation.power(m, exponent), (leaf,), eps=1e-6, atol=1e-7, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [0.5, -0.7])
def test_power_second_derivatives(exponent: float) -> None:
    size = 3
    one_plane = rotation.matrix(*torch.randn(2, size, dtype=torch.float64))
    identity = torch.eye(size, dtype=torch.float64)
    turned = torch.stack([random_rotations(1, size, largest=2.0)[0], one_plane, identity]).requires_grad_()
    assert gradgradcheck(lambda m: rotation.power(m, exponent), (turned,), atol=1e-6)


def test_power_product_of_hessian_and_vector() -> None:
    """Along a line, where the cotangent of the power does not itself depend on the argument."""
    turned, along, cotangent = random_rotations(1, 4), torch.randn(1, 4, 4).double(), torch.randn(1, 4, 4).double()

    def slope(at: float) -> Tensor:
        leaf = (turned + at * along).requires_grad_()
        (gradient,) = torch.autograd.grad((rotation.power(leaf, 0.5) * cotangent).sum(), leaf, create_graph=True)
        (second,) = torch.autograd.grad((gradient * along).sum(), leaf)
        return torch.stack(((gradient * along).sum(), (second * along).sum())).detach()

    step = 1e-5
    expected = (slope(step)[0] - slope(-step)[0]) / (2 * step)
    torch.testing.assert_close(slope(0.0)[1], expected, rtol=1e-7, atol=0)


def test_power_within_transforms() -> None:
    turned = random_rotations(2, 3)

    def total(matrix: Tensor) -> Tensor:
        return rotation.power(matrix, 0.5).square().cumsum(0).sum()

    leaf = turned.clone().requires_grad_()
    (expected,) = torch.autograd.grad(sum(total(matrix) for matrix in leaf), leaf)
    actual = torch.func.vmap(torch.func.grad(total))(turned)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


@for_each("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    """Opposite and short vectors as well: their norms are computed in float32."""
    x = torch.randn(5, 8).to(dtype).requires_grad_()
    a = torch.randn(5, 8).to(dtype)
    b = torch.randn(5, 8).to(dtype)
    b[0], b[1], b[2], a[3] = -a[0], 2 * a[1], 1e-3 * b[2], 300 * a[3]
    a.requires_grad_(), b.requires_grad_()
    rotated = rotation.rotate(a, b, x)
    gradients = torch.autograd.grad(rotated.float().square().sum() + rotated.sum(), (a, b, x))
    assert rotated.dtype == dtype
    assert all(gradient.dtype == dtype and gradient.isfinite().all() for gradient in gradients)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(rotated.float(), rotation.rotate(a.float(), b.float(), x.float()), rtol=eps, atol=eps)
    power = rotation.power(rotation.matrix(a, b)[1:].to(dtype), 0.5)
    assert power.dtype == dtype
    assert power.isfinite().all()


@for_each("dtype", DTYPES)
def test_short_vectors_have_finite_gradients(dtype: torch.dtype) -> None:
    """Down to the norm that counts as zero: the derivative of 1/‖v‖ overflows far above it."""
    shortest = torch.finfo(dtype).tiny ** 0.5
    for scale in torch.logspace(0.2, math.log10(1e-5 / shortest), 30, dtype=torch.float64).tolist():
        vector = torch.randn(2, 6, dtype=dtype)
        vector = (vector * (scale * shortest / vector.norm(dim=-1, keepdim=True))).requires_grad_()
        cotangent = torch.randn_like(vector)
        unit = rotation.direction(vector).unit
        (gradient,) = torch.autograd.grad(unit, vector, cotangent)
        norm = vector.detach().double().norm(dim=-1, keepdim=True)
        known = vector.detach().double() / norm
        expected = (cotangent - (known * cotangent).sum(-1, keepdim=True) * known) / norm
        torch.testing.assert_close((gradient * norm).double(), expected * norm, rtol=1e-5, atol=1e-5)
