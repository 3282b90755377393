"""Unitary and orthogonal matrices, applied to vectors without computing the matrices.

Every function takes vectors (…, N), real or complex, and is exactly unitary for all values of its parameters: no step
of an optimizer can leave the group. `rows` computes the matrix, for tests, figures and small N.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


def dft(vectors: Tensor) -> Tensor:
    """Return the unitary discrete Fourier transform of vectors (…, N), in O(N log N)."""
    return torch.fft.fft(vectors, norm="ortho") if len(vectors) > 0 else vectors  # MKL refuses an empty batch


def inverse_dft(vectors: Tensor) -> Tensor:
    """Return the inverse of `dft`, its adjoint."""
    return torch.fft.ifft(vectors, norm="ortho") if len(vectors) > 0 else vectors  # MKL refuses an empty batch


def phase(vectors: Tensor, angles: Tensor) -> Tensor:
    """Return the vectors (…, N) times diag(e^{iω}) for angles ω (N,)."""
    return vectors * torch.polar(torch.ones_like(angles), angles)


def reflect(vectors: Tensor, axis: Tensor) -> Tensor:
    """Return the complex Householder reflections (I − 2 v v*/‖v‖²) x for an axis v (N,); the identity for v = 0."""
    squared = (axis.real**2 + axis.imag**2).sum()
    scale = 2 / torch.where(squared > 0, squared, 1.0)
    along = (vectors * axis.conj()).sum(-1, keepdim=True)
    return vectors - scale * along * axis


def permute(vectors: Tensor, permutation: Tensor) -> Tensor:
    """Return the vectors (…, N) with entry i taken from entry permutation[i]."""
    return vectors.index_select(-1, permutation)


class Pairing(NamedTuple):
    """The pairs of units that L layers of plane rotations rotate; all tensors (L, N).

    Attributes:
        partner: Index of the other unit of the pair, or of the unit itself if the layer does not rotate it.
        angle: Index of the pair's angle, or the number of pairs if the layer does not rotate the unit.
        first: True for the first unit of a pair.
    """

    partner: Tensor
    angle: Tensor
    first: Tensor

    @property
    def pairs(self) -> int:
        """Number of pairs in all layers, which is the number of angles."""
        return int(self.first.sum())


def tunable_pairing(size: int, layers: int) -> Pairing:
    """Pair neighbours: (0, 1), (2, 3), … in the first layer, (1, 2), (3, 4), … in the second, and so on alternately.

    Full capacity is layers = size (Jing et al., ICML 2017, section 4.1).
    """
    return _pairing(size, [(torch.arange(layer % 2, size - 1, 2, device="cpu"), 1) for layer in range(layers)])


def fft_pairing(size: int) -> Pairing:
    """Pair i with i + 2^k in layer k of ⌈log₂ N⌉, as the fast Fourier transform does (Jing et al., section 4.2).

    If N is not a power of two, units whose partner would be beyond the last unit are not rotated.
    """
    strides = [1 << layer for layer in range((size - 1).bit_length())]
    ones = [torch.arange(size - stride, device="cpu") for stride in strides]
    return _pairing(size, [(one[one & stride == 0], stride) for one, stride in zip(ones, strides, strict=True)])


def _pairing(size: int, layers: list[tuple[Tensor, int]]) -> Pairing:
    """Return the pairs of `layers`, each given by its first units and the distance of their partners.

    The tensors are on the CPU, whatever the default device: on the meta device they would have no values.
    """
    count = sum(len(one) for one, _ in layers)
    partner = torch.arange(size, device="cpu").repeat(len(layers), 1)
    angle = torch.full((len(layers), size), count, device="cpu")
    first = torch.zeros(len(layers), size, dtype=torch.bool, device="cpu")
    index = 0
    for layer, (one, distance) in enumerate(layers):
        partner[layer, one], partner[layer, one + distance] = one + distance, one
        angle[layer, one] = angle[layer, one + distance] = torch.arange(index, index + len(one), device="cpu")
        first[layer, one] = True
        index += len(one)
    return Pairing(partner, angle, first)


class Rotations(NamedTuple):
    """Layers of plane rotations: layer l maps x to own[l] ⊙ x + other[l] ⊙ x[partner[l]], all (L, N)."""

    own: Tensor
    other: Tensor
    partner: Tensor


def rotations(pairing: Pairing, theta: Tensor, phi: Tensor | None = None) -> Rotations:
    """Return the layers that apply [[e^{iφ} cos θ, −e^{iφ} sin θ], [sin θ, cos θ]] to each pair.

    θ and φ (pairs,) are in radians; without φ the rotations are real.
    """
    angles = torch.cat((theta, theta.new_zeros(1)))[pairing.angle]
    own, other = angles.cos(), torch.where(pairing.first, -angles.sin(), angles.sin())
    if phi is not None:
        phases = torch.where(pairing.first, torch.cat((phi, phi.new_zeros(1)))[pairing.angle], 0.0)
        own, other = torch.polar(torch.ones_like(phases), phases) * torch.stack((own, other))
    return Rotations(own, other, pairing.partner)


def rotate(vectors: Tensor, layers: Rotations) -> Tensor:
    """Return F_L ⋯ F_1 x for vectors (…, N) in O(L N) operations."""
    for own, other, partner in zip(*(leaf.unbind(0) for leaf in layers), strict=True):
        vectors = torch.addcmul(own * vectors, other, permute(vectors, partner))
    return vectors


def unitary(generator: Tensor) -> Tensor:
    """Return exp(A) (N, N), unitary, for the skew-Hermitian A whose N² real coordinates are the entries of `generator`.

    The part above the diagonal holds the real parts of A, the diagonal and the part below hold its imaginary parts.
    Every unitary matrix is of this form.
    """
    upper, lower = generator.triu(1), generator.tril()
    imaginary = lower + lower.tril(-1).T
    matrix = torch.matrix_exp(torch.complex(upper - upper.T, imaginary))
    # one step of the Newton–Schulz iteration: in float32 at N = 100 it reduces the error of the exponential from 2e-5
    # to 1e-6
    return 1.5 * matrix - 0.5 * matrix @ (matrix.mH @ matrix)


def generator_of(eigenvectors: Tensor, angles: Tensor) -> Tensor:
    """Return the generator (N, N) of V diag(e^{iω}) V* for unitary V (N, N) and angles ω (N,)."""
    skew = (eigenvectors * (1j * angles)) @ eigenvectors.mH
    return skew.real.triu(1) + skew.imag.tril()


def rows(apply: Callable[[Tensor], Tensor], size: int, like: Tensor) -> Tensor:
    """Return the matrix M (N, N) with x M = apply(x) for row vectors x, in the dtype and on the device of `like`."""
    return apply(torch.eye(size, dtype=like.dtype, device=like.device))


def modrelu(vectors: Tensor, bias: Tensor) -> Tensor:
    """Return ReLU(|z| + b) z/|z| for real z (…, N) and b (N,); 0 at z = 0 (Arjovsky et al. 2016, equation 8)."""
    return vectors.sign() * torch.relu(vectors.abs() + bias)


def complex_modrelu(vectors: Tensor, bias: Tensor) -> Tensor:
    """Return `modrelu` of complex numbers (…, 2N), real parts before imaginary parts, with b (N,).

    A z so small that 1/|z|² would overflow is returned unchanged.
    """
    parts = vectors.unflatten(-1, (2, -1))
    is_normal = torch.linalg.vector_norm(parts.detach(), dim=-2, keepdim=True) > torch.finfo(parts.dtype).tiny ** 0.4
    # the second derivative of a norm at 0 is not a number
    size = torch.linalg.vector_norm(parts.masked_fill(~is_normal, 1), dim=-2, keepdim=True)
    scale = torch.relu(1 + bias / size.masked_fill(~is_normal, torch.inf))
    return (parts * scale).flatten(-2)
