"""The product of layers of plane rotations as a matrix, once for all steps, and the gradient of the layers."""

from typing import Any

import torch
from torch import Tensor

from gyral.ops.unitary import permute


def images(a: Any) -> list[Tensor]:
    """Return all unit vectors (H, N) before the first layer and after each layer; those of real and imaginary parts.

    Args:
        a: The arguments of `gyral.ops.gated.naive.gated`, with `partner`.
    """
    own, other = _to_complex(a, *a.w_hh)
    vectors = [*_to_complex(a, torch.eye(a.w_hh.shape[-1], dtype=a.w_hh.dtype, device=a.w_hh.device))]
    for index, partner in enumerate(a.partner):
        vectors.append(torch.addcmul(own[index] * vectors[-1], other[index], permute(vectors[-1], partner)))
    return vectors


def matrix(a: Any, vectors: list[Tensor]) -> Tensor:
    """Return the matrix (H, H) of the layers, given `images`; for complex numbers, real before imaginary parts."""
    return _to_real(a, vectors[-1]).T.contiguous()


def gradient(a: Any, vectors: list[Tensor], d: Tensor) -> Tensor:
    """Return the gradient of the layers (2, L, H), given `images` and the gradient of the matrix."""
    own, other = _to_complex(a, *a.w_hh)
    (d,), gradients = _to_complex(a, d.T), []
    own, other = own.conj(), other.conj()
    for index in range(len(own) - 1, -1, -1):
        gradients.append(d)
        # the partner of the partner of a unit is this unit
        d = torch.addcmul(permute(other[index] * d, a.partner[index]), own[index], d)
    across = [permute(before, partner) for before, partner in zip(vectors[:-1], a.partner, strict=True)]
    d = torch.stack(gradients[::-1])
    return torch.stack([_to_real(a, (torch.stack(each).conj() * d).sum(1)) for each in (vectors[:-1], across)])


def _to_complex(a: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors (…, H) as (…, N), with complex numbers where the state has them."""
    if a.kind != "complex_modrelu":
        return tensors
    return tuple(torch.complex(*each.chunk(2, dim=-1)) for each in tensors)


def _to_real(a: Any, tensor: Tensor) -> Tensor:
    """Undo `_to_complex`."""
    return torch.cat((tensor.real, tensor.imag), dim=-1) if a.kind == "complex_modrelu" else tensor
