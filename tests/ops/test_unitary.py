"""Unitary operators against dense matrices written out from their definitions, entry by entry."""

import cmath
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.utils._python_dispatch import TorchDispatchMode

from gyral.ops import unitary
from tests.helpers.loops import for_each

SIZES = (1, 2, 3, 5, 8, 13)
every_size = for_each("size", SIZES)
complex_or_real = for_each("is_complex", [True, False])

# ---------------------------------------------------------------- dense matrices W, applied to columns, in float64


def dense_dft(size: int) -> np.ndarray:
    matrix = np.zeros((size, size), dtype=complex)
    for row in range(size):
        for column in range(size):
            matrix[row, column] = cmath.exp(-2j * math.pi * row * column / size) / math.sqrt(size)
    return matrix


def dense_phase(angles: np.ndarray) -> np.ndarray:
    matrix = np.zeros((len(angles), len(angles)), dtype=complex)
    for unit, angle in enumerate(angles):
        matrix[unit, unit] = complex(math.cos(angle), math.sin(angle))
    return matrix


def dense_reflection(axis: np.ndarray) -> np.ndarray:
    squared = sum(abs(entry) ** 2 for entry in axis)
    return np.eye(len(axis)) - 2 * np.outer(axis, axis.conj()) / squared


def dense_permutation(permutation: np.ndarray) -> np.ndarray:
    matrix = np.zeros((len(permutation), len(permutation)))
    for row, source in enumerate(permutation):
        matrix[row, source] = 1
    return matrix


def tunable_pairs(size: int, capacity: int) -> list[list[tuple[int, int]]]:
    """Odd layers, the first among them, pair (0, 1), (2, 3), …; even layers pair (1, 2), (3, 4), …"""
    layers = []
    for layer in range(1, capacity + 1):
        one = 0 if layer % 2 == 1 else 1
        pairs = []
        while one + 1 < size:
            pairs.append((one, one + 1))
            one += 2
        layers.append(pairs)
    return layers


def fft_pairs(size: int) -> list[list[tuple[int, int]]]:
    """Butterflies: blocks of 2, 4, 8, … units whose first half is paired with the second, as far as there are units."""
    layers = []
    half = 1
    while half < size:
        blocks = [range(start, start + half) for start in range(0, size, 2 * half)]
        layers.append([(one, one + half) for block in blocks for one in block if one + half < size])
        half *= 2
    return layers


def dense_rotations(
    size: int, layers: list[list[tuple[int, int]]], theta: np.ndarray, phi: np.ndarray | None
) -> np.ndarray:
    """F_L ⋯ F_1; angles are numbered through the layers, from the first, and through the pairs of each."""
    product = np.eye(size, dtype=complex)
    index = 0
    for pairs in layers:
        layer = np.eye(size, dtype=complex)
        for one, other in pairs:
            cosine, sine = math.cos(theta[index]), math.sin(theta[index])
            turn = 1 if phi is None else cmath.exp(1j * phi[index])
            layer[one, one], layer[one, other] = turn * cosine, -turn * sine
            layer[other, one], layer[other, other] = sine, cosine
            index += 1
        product = layer @ product
    assert index == len(theta)
    return product


def dense_exponential(generator: np.ndarray) -> np.ndarray:
    """exp(A), of the eigenvalues of −iA: real parts of A above the diagonal, imaginary ones on it and below."""
    size = len(generator)
    skew = np.zeros((size, size), dtype=complex)
    for row in range(size):
        skew[row, row] = 1j * generator[row, row]
        for column in range(row + 1, size):
            skew[row, column] = complex(generator[row, column], generator[column, row])
            skew[column, row] = -skew[row, column].conjugate()
    values, vectors = np.linalg.eigh(-1j * skew)
    return (vectors * np.exp(1j * values)) @ vectors.conj().T


def all_pairings(size: int) -> list[tuple[unitary.Pairing, list[list[tuple[int, int]]]]]:
    """Return every pairing of a size, all capacities and FFT style, with the pairs that it should have."""
    tunable = [
        (unitary.tunable_pairing(size, capacity), tunable_pairs(size, capacity)) for capacity in range(1, size + 1)
    ]
    return [*tunable, (unitary.fft_pairing(size), fft_pairs(size))]


def assert_is(apply: Callable[[Tensor], Tensor], dense: np.ndarray, is_complex: bool = True) -> None:
    """Assert that a function of vectors (…, N) multiplies with a matrix, and that `rows` builds its transpose."""
    size = len(dense)
    dtype = torch.complex128 if is_complex else torch.float64
    vectors = torch.randn(2, 3, size, dtype=dtype)
    applied = apply(vectors)
    assert applied.dtype == dtype
    for row in range(2):
        for column in range(3):
            expected = dense @ vectors[row, column].numpy()
            np.testing.assert_allclose(applied[row, column], expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(unitary.rows(apply, size, vectors).T, dense, rtol=0, atol=1e-13)


def random_angles(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.empty(shape, dtype=dtype).uniform_(-math.pi, math.pi)


@every_size
def test_the_fourier_transform_and_its_inverse(size: int) -> None:
    assert_is(unitary.dft, dense_dft(size))
    assert_is(unitary.inverse_dft, dense_dft(size).conj().T)


@every_size
def test_phase_is_a_diagonal_of_unit_numbers(size: int) -> None:
    angles = random_angles(size)
    assert_is(lambda vectors: unitary.phase(vectors, angles), dense_phase(angles.numpy()))


@every_size
def test_reflection_is_householders(size: int) -> None:
    for scale in (1e-6, 1.0, 1e6):
        axis = scale * torch.randn(size, dtype=torch.complex128)
        assert_is(lambda vectors, axis=axis: unitary.reflect(vectors, axis), dense_reflection(axis.numpy()))


def test_reflection_negates_its_axis_and_keeps_orthogonal_vectors() -> None:
    axis, other = torch.randn(2, 7, dtype=torch.complex128)
    other = other - axis * (axis.conj() @ other) / (axis.conj() @ axis)
    torch.testing.assert_close(unitary.reflect(axis, axis), -axis, rtol=0, atol=1e-14)
    torch.testing.assert_close(unitary.reflect(other, axis), other, rtol=0, atol=1e-14)
    torch.testing.assert_close(unitary.reflect(1j * axis, axis), -1j * axis, rtol=0, atol=1e-14)


def test_reflection_at_a_zero_axis_is_the_identity_with_finite_gradients() -> None:
    vectors = torch.randn(3, 5, dtype=torch.complex64, requires_grad=True)
    axis = torch.zeros(5, dtype=torch.complex64, requires_grad=True)
    reflected = unitary.reflect(vectors, axis)
    assert torch.equal(reflected, vectors)
    cotangent = torch.randn_like(reflected)
    of_vectors, of_axis = torch.autograd.grad(reflected, (vectors, axis), cotangent)
    assert torch.equal(of_vectors, cotangent)
    assert of_axis.isfinite().all()


@every_size
def test_permutation_takes_entry_i_from_its_ith_index(size: int) -> None:
    permutation = torch.randperm(size)
    dense = dense_permutation(permutation.numpy())
    assert_is(lambda vectors: unitary.permute(vectors, permutation), dense)
    assert_is(lambda vectors: unitary.permute(vectors, permutation), dense, is_complex=False)


@complex_or_real
@every_size
def test_layers_of_rotations_are_blocks_placed_by_hand(size: int, is_complex: bool) -> None:
    for pairing, pairs in all_pairings(size):
        theta = random_angles(pairing.pairs)
        phi, omega = (random_angles(pairing.pairs), random_angles(size)) if is_complex else (None, None)
        layers = unitary.rotations(pairing, theta, phi)
        dense = dense_rotations(size, pairs, theta.numpy(), None if phi is None else phi.numpy())
        assert_is(lambda vectors, layers=layers: unitary.rotate(vectors, layers), dense, is_complex)
        if omega is not None:
            assert_is(
                lambda vectors, layers=layers, omega=omega: unitary.phase(unitary.rotate(vectors, layers), omega),
                dense_phase(omega.numpy()) @ dense,
            )


@every_size
def test_real_rotations_act_on_complex_vectors_part_by_part(size: int) -> None:
    pairing = unitary.tunable_pairing(size, size)
    layers = unitary.rotations(pairing, random_angles(pairing.pairs))
    vectors = torch.randn(4, size, dtype=torch.complex128)
    expected = torch.complex(unitary.rotate(vectors.real, layers), unitary.rotate(vectors.imag, layers))
    torch.testing.assert_close(unitary.rotate(vectors, layers), expected, rtol=0, atol=1e-14)


# ---------------------------------------------------------------- structure: what makes a product O(L N)


@every_size
def test_every_pair_has_a_separate_angle(size: int) -> None:
    for pairing, pairs in all_pairings(size):
        assert pairing.pairs == sum(map(len, pairs))
        assert all(tensor.shape == (len(pairs), size) for tensor in pairing)
        index = 0
        for layer, of_layer in enumerate(pairs):
            passing = set(range(size))
            for one, other in of_layer:
                assert pairing.partner[layer, [one, other]].tolist() == [other, one]
                assert pairing.angle[layer, [one, other]].tolist() == [index, index]
                assert pairing.first[layer, [one, other]].tolist() == [True, False]
                passing -= {one, other}
                index += 1
            for unit in passing:
                assert pairing.partner[layer, unit] == unit
                assert pairing.angle[layer, unit] == pairing.pairs
                assert not pairing.first[layer, unit]


def test_number_of_layers() -> None:
    for size in range(1, 70):
        assert len(unitary.fft_pairing(size).partner) == math.ceil(math.log2(size))
    for size in (2, 16, 64):  # all units are paired in every layer of a power of two
        assert unitary.fft_pairing(size).pairs == size // 2 * int(math.log2(size))
    for size in (6, 7):  # a pair less in the even layers of an even size
        pairs = [unitary.tunable_pairing(size, capacity).pairs for capacity in range(1, size + 1)]
        assert pairs == ([3, 5, 8, 10, 13, 15] if size == 6 else [3, 6, 9, 12, 15, 18, 21])


def test_fft_style_connects_all_units() -> None:
    for size in (2, 8, 16):
        pairing = unitary.fft_pairing(size)
        layers = unitary.rotations(pairing, random_angles(pairing.pairs))
        matrix = unitary.rows(lambda vectors, layers=layers: unitary.rotate(vectors, layers), size, layers.own)
        assert matrix.abs().min() > 0


class Work(TorchDispatchMode):
    """Records how many numbers each operation puts out, views apart."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.sizes += [leaf.numel() for leaf in (result if isinstance(result, tuple) else (result,))]
        return result


@for_each("size", [64, 1024])
def test_a_layer_puts_out_a_few_times_as_many_numbers_as_it_takes(size: int) -> None:
    rows = 3
    vectors = torch.randn(rows, size, dtype=torch.complex64)
    for pairing in (unitary.tunable_pairing(size, 4), unitary.fft_pairing(size)):
        layers = unitary.rotations(pairing, random_angles(pairing.pairs), random_angles(pairing.pairs))
        with Work() as work:
            unitary.rotate(vectors, layers)
        assert max(work.sizes) == rows * size
        assert sum(work.sizes) <= 4 * len(pairing.partner) * rows * size
    axis, angles, permutation = torch.randn(size, dtype=torch.complex64), random_angles(size), torch.randperm(size)
    with Work() as work:
        turned = unitary.permute(unitary.phase(unitary.reflect(unitary.dft(vectors), axis), angles), permutation)
        unitary.inverse_dft(turned)
    assert max(work.sizes) == rows * size
    assert sum(work.sizes) <= 16 * rows * size


# ---------------------------------------------------------------- norms


def urnn_operator(size: int) -> Callable[[Tensor], Tensor]:
    """All that uRNN's matrix is made of, in float32."""
    angles, permutation = random_angles(3, size, dtype=torch.float32), torch.randperm(size)
    axes = torch.randn(2, size, dtype=torch.complex64)

    def apply(vectors: Tensor) -> Tensor:
        vectors = unitary.reflect(unitary.dft(unitary.phase(vectors, angles[0])), axes[0])
        vectors = unitary.inverse_dft(unitary.phase(unitary.permute(vectors, permutation), angles[1]))
        return unitary.phase(unitary.reflect(vectors, axes[1]), angles[2])

    return apply


def rotation_operator(pairing: unitary.Pairing, is_complex: bool) -> Callable[[Tensor], Tensor]:
    theta = random_angles(pairing.pairs, dtype=torch.float32)
    if not is_complex:
        real = unitary.rotations(pairing, theta)
        return lambda vectors: unitary.rotate(vectors, real)
    layers = unitary.rotations(pairing, theta, random_angles(pairing.pairs, dtype=torch.float32))
    omega = random_angles(pairing.partner.shape[1], dtype=torch.float32)
    return lambda vectors: unitary.phase(unitary.rotate(vectors, layers), omega)


def norms(vectors: Tensor) -> Tensor:
    return torch.linalg.vector_norm(vectors.to(torch.complex128), dim=-1)


@for_each("size", [1, 2, 3, 64, 100, 1024])
def test_norms_of_vectors_are_kept(size: int) -> None:
    pairings = [unitary.tunable_pairing(size, min(size, capacity)) for capacity in (1, 2, 100)]
    operators = {"urnn": (urnn_operator(size), torch.complex64)}
    for index, pairing in enumerate((*pairings, unitary.fft_pairing(size))):
        operators[f"complex {index}"] = rotation_operator(pairing, is_complex=True), torch.complex64
        operators[f"real {index}"] = rotation_operator(pairing, is_complex=False), torch.float32
    for name, (apply, dtype) in operators.items():
        vectors = torch.randn(8, size, dtype=dtype)
        error = (norms(apply(vectors)) / norms(vectors) - 1).abs().max().item()
        assert error <= 1e-6, name


def rotations_of(name: str, size: int) -> unitary.Pairing:
    return unitary.fft_pairing(size) if name == "fft" else unitary.tunable_pairing(size, size if name == "full" else 2)


@pytest.mark.named("urnn-*", "two-64-True")
@pytest.mark.parametrize(
    ("name", "size", "is_complex"),
    [
        ("urnn", 64, True),
        *((name, size, kind) for name, size in (("fft", 64), ("fft", 50), ("two", 64)) for kind in (True, False)),
        *(("full", size, kind) for size in (8, 16, 100) for kind in (True, False)),
    ],
)
def test_gradients_keep_their_norm_through_a_thousand_steps(name: str, size: int, is_complex: bool) -> None:
    apply = urnn_operator(size) if name == "urnn" else rotation_operator(rotations_of(name, size), is_complex)
    start = torch.randn(2, size, dtype=torch.complex64 if is_complex else torch.float32, requires_grad=True)
    vectors = start
    for _ in range(1000):
        vectors = apply(vectors)
    cotangent = torch.randn_like(vectors)
    (gradient,) = torch.autograd.grad(vectors, start, cotangent)
    assert (norms(gradient) / norms(cotangent) - 1).abs().max() <= 1e-4
    assert (norms(vectors.detach()) / norms(start.detach()) - 1).abs().max() <= 1e-4


# ---------------------------------------------------------------- any unitary matrix


@every_size
def test_the_unitary_matrix_is_the_exponential_of_its_generator(size: int) -> None:
    generator = torch.randn(size, size, dtype=torch.float64)
    expected = dense_exponential(generator.numpy())
    np.testing.assert_allclose(unitary.unitary(generator), expected, rtol=0, atol=1e-12)


@for_each("scale", [0.01, 1.0, 30.0])
def test_the_matrix_is_unitary_in_float32(scale: float) -> None:
    matrix = unitary.unitary(scale * torch.randn(100, 100)).to(torch.complex128)
    assert torch.linalg.matrix_norm(matrix.mH @ matrix - torch.eye(100), ord=2) <= 1e-6


@every_size
def test_every_unitary_matrix_has_a_generator(size: int) -> None:
    wanted, _ = torch.linalg.qr(torch.randn(size, size, dtype=torch.complex128))
    # for orthonormal eigenvectors, those of the Hermitian matrix (W + W*)/2 + α (W − W*)/2i: the same ones
    hermitian = (wanted + wanted.mH) / 2 + 0.3719 * (wanted - wanted.mH) / 2j
    _, eigenvectors = torch.linalg.eigh(hermitian)
    angles = (eigenvectors.mH @ wanted @ eigenvectors).diagonal().angle()
    generator = unitary.generator_of(eigenvectors, angles)
    assert generator.shape == (size, size)
    assert generator.dtype == torch.float64
    torch.testing.assert_close(unitary.unitary(generator), wanted, rtol=0, atol=1e-12)


def test_a_generator_is_found_again() -> None:
    generator = 0.3 * torch.randn(6, 6, dtype=torch.float64)  # small: no angle reaches π
    lower = generator.tril() + generator.tril(-1).T
    skew = torch.complex(generator.triu(1) - generator.triu(1).T, lower)
    angles, eigenvectors = torch.linalg.eigh(-1j * skew)
    torch.testing.assert_close(unitary.generator_of(eigenvectors, angles), generator, rtol=0, atol=1e-13)


# ---------------------------------------------------------------- modReLU

BIASES = (-0.7, 0.0, 0.4)


def test_modrelu_of_real_numbers() -> None:
    vectors = torch.tensor([-1e30, -2.0, -0.5, -1e-30, 0.0, 1e-30, 0.5, 2.0, 1e30])
    for bias in BIASES:
        z = vectors.clone().requires_grad_()
        b = torch.full_like(z, bias, requires_grad=True)
        activated = unitary.modrelu(z, b)
        expected, slopes = [], []
        for entry in vectors.tolist():
            size = max(abs(entry) + bias, 0.0)
            expected.append(math.copysign(size, entry) if entry else 0.0)
            slopes.append(float(size > 0 and entry != 0))
        torch.testing.assert_close(activated, torch.tensor(expected), rtol=1e-6, atol=0)
        of_z, of_b = torch.autograd.grad(activated.sum(), (z, b))
        assert of_z.tolist() == slopes
        assert of_b.tolist() == (torch.tensor(slopes) * vectors.sign()).tolist()


def test_modrelu_of_complex_numbers() -> None:
    sizes = torch.tensor([0.3, 0.69, 0.71, 5.0, 1e10, 1e30]).double()
    angles = random_angles(len(sizes))
    z = torch.polar(sizes, angles)
    vectors = torch.cat((z.real, z.imag))
    for bias in BIASES:
        activated = unitary.complex_modrelu(vectors, torch.full_like(sizes, bias))
        expected = torch.polar((sizes + bias).clamp(min=0.0), angles)
        torch.testing.assert_close(torch.complex(*activated.chunk(2)), expected, rtol=1e-14, atol=0)
        single = unitary.complex_modrelu(vectors.float(), torch.full_like(sizes, bias).float())
        torch.testing.assert_close(torch.complex(*single.double().chunk(2)), expected, rtol=1e-5, atol=1e-7)


@for_each("dtype", [torch.float32, torch.float64])
def test_modrelu_of_complex_numbers_too_small_to_divide_by(dtype: torch.dtype) -> None:
    tiny = 1e-30 if dtype == torch.float32 else 1e-200
    for bias in BIASES:
        vectors = torch.tensor(
            [0.0, tiny, tiny, 0.0, 0.0, -tiny], dtype=dtype, requires_grad=True
        )  # 0, tiny, tiny(1 − i)
        b = torch.full((3,), bias, dtype=dtype, requires_grad=True)
        activated = unitary.complex_modrelu(vectors, b)
        assert torch.equal(activated, vectors)
        cotangent = torch.randn_like(activated)
        of_vectors, of_b = torch.autograd.grad(activated, (vectors, b), cotangent)
        assert torch.equal(of_vectors, cotangent)
        assert of_b.count_nonzero() == 0


@for_each("bias", BIASES)
def test_modrelu_is_finite_at_every_magnitude(bias: float) -> None:
    exponents = torch.arange(-44, 38, dtype=torch.float64)
    z = torch.polar(10**exponents, random_angles(len(exponents)))
    for activation, parts in ((unitary.complex_modrelu, (z.real, z.imag)), (unitary.modrelu, (z.real,))):
        vectors = torch.cat(parts).float().requires_grad_()
        b = torch.full((len(z),), bias, requires_grad=True)
        activated = activation(vectors, b)
        gradients = torch.autograd.grad(activated, (vectors, b), torch.randn_like(activated))
        assert all(tensor.isfinite().all() for tensor in (activated, *gradients))


@for_each("activation", ["modrelu", "complex_modrelu"])
def test_modrelu_gradients(activation: str) -> None:
    size, rows = 4, 5
    sizes = 0.5 + torch.rand(rows, size, dtype=torch.float64)  # the bias leaves 0.1 and more to the kinks
    bias = torch.tensor([-2.0, -0.4, 0.0, 0.7], dtype=torch.float64, requires_grad=True)
    if activation == "modrelu":
        vectors = sizes * torch.randn(rows, size).sign()
    else:
        z = torch.polar(sizes, random_angles(rows, size))
        vectors = torch.cat((z.real, z.imag), dim=-1)
    assert gradcheck(getattr(unitary, activation), (vectors.requires_grad_(), bias), eps=1e-6, atol=1e-8, rtol=1e-6)


def test_complex_modrelu_of_real_numbers_is_modrelu() -> None:
    vectors, bias = torch.randn(6, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    activated = unitary.complex_modrelu(torch.cat((vectors, torch.zeros_like(vectors)), dim=-1), bias)
    real, imaginary = activated.chunk(2, dim=-1)
    torch.testing.assert_close(real, unitary.modrelu(vectors, bias), rtol=0, atol=1e-15)
    assert imaginary.count_nonzero() == 0
