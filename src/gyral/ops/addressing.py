"""Addressing of memories with slots, as in NTM (Graves et al. 2014) and DNC (Graves et al. 2016).

B is the batch size, H the number of heads, C the number of slots, W the width of a slot. Numbers of half precision are
weighed in float32: in bfloat16, a usage of 0.999 is 1.
"""

import torch
from torch import Tensor

from gyral.ops.compiler import is_exporting_to_onnx

COSINE_EPSILON = 1e-6  # bounds the gradient of a cosine at a zero vector
LOG_EPSILON = 1e-12  # bounds the gradient of a logarithm at zero
USAGE_EPSILON = 1e-6  # bounds the gradient of a product of usages at zero


def content_weighting(keys: Tensor, strengths: Tensor, memory: Tensor) -> Tensor:
    """Return softmax_i(β cos(k, M(i))), the weighting of slots by their similarity to a key.

    Each norm in the cosine is √(|·|² + 1e-6), so that a slot or key of zeros has similarity 0 and a finite gradient.

    Args:
        keys: k (B, H, W).
        strengths: β (B, H, 1).
        memory: M (B, C, W).

    Returns:
        (B, H, C), positive, with sum 1.
    """
    dtype = keys.dtype
    keys, strengths, memory = _to_single(keys), _to_single(strengths), _to_single(memory)
    key_norms = keys.square().sum(-1, keepdim=True).add(COSINE_EPSILON).rsqrt()
    slot_norms = (memory * memory).sum(-1).add(COSINE_EPSILON).rsqrt().unsqueeze(1)
    similarities = torch.bmm(keys * (strengths * key_norms), memory.transpose(1, 2))
    return torch.softmax(similarities * slot_norms, dim=-1).to(dtype)


def shift_weighting(weights: Tensor, shifts: Tensor) -> Tensor:
    """Return the circular convolution w̃(i) = Σ_j w(j) s(i − j) (Graves et al. 2014, equation 8).

    Args:
        weights: w (B, H, C).
        shifts: s (B, H, 2S + 1), the weights of the shifts −S … S.
    """
    largest = shifts.shape[-1] // 2
    shifted = weights * shifts[..., largest, None]
    for shift in range(1, largest + 1):
        backward, forward = shifts[..., largest - shift, None], shifts[..., largest + shift, None]
        shifted = shifted + weights.roll(-shift, -1) * backward + weights.roll(shift, -1) * forward
    return shifted


def sharpen_weighting(weights: Tensor, power: Tensor) -> Tensor:
    """Return w(i)^γ / Σ_j w(j)^γ (Graves et al. 2014, equation 9), without 0 / 0 for large γ.

    Args:
        weights: w ≥ 0 (B, H, C).
        power: γ (B, H, 1).
    """
    logarithms = (_to_single(weights) + LOG_EPSILON).log()
    return torch.softmax(_to_single(power) * logarithms, dim=-1).to(weights.dtype)


def erase_and_add(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
    """Return M ⊙ Π_h (1 − w_h e_hᵀ) + Σ_h w_h a_hᵀ, the memory after all heads have erased and then added.

    Args:
        memory: M (B, C, W).
        weights: w (B, H, C), of the write heads.
        erase: e (B, H, W), in [0, 1].
        add: a (B, H, W).
    """
    columns, kept = weights.transpose(1, 2), memory
    for head in range(weights.shape[1]):
        # products of matrices, whose gradients need no tensor of the size of the memory
        kept = kept * (1 + torch.bmm(columns[:, :, head : head + 1], -erase[:, head : head + 1]))
    return torch.baddbmm(kept, columns, add)


def allocation_weighting(usage: Tensor) -> Tensor:
    """Return the weighting of slots by how free they are (Graves et al. 2016, equation 1).

    a[φ_j] = (1 − u[φ_j]) Π_{i<j} u[φ_i], where φ are the slots from the least used to the most used; of equally used
    slots, the first comes first. As in the code of the authors (google-deepmind/dnc on GitHub), u is raised to
    ε + (1 − ε) u with ε = 1e-6. Gradients flow through the values of u, not through the order.

    Args:
        usage: u (B, C) in [0, 1].

    Returns:
        a (B, C), at least 0, with a sum of at most 1.
    """
    raised = USAGE_EPSILON + (1 - USAGE_EPSILON) * _to_single(usage)
    # ONNX has a single kind of sort, which keeps the order of equal values
    ascending, order = torch.sort(raised) if is_exporting_to_onnx() else torch.sort(raised, stable=True)
    logarithms = ascending.log()
    before = (logarithms.cumsum(-1) - logarithms).exp()  # the product of those before: ONNX has no operator for it
    return torch.zeros_like(raised).scatter(1, order, (1 - ascending) * before).to(usage.dtype)


def update_links(links: Tensor, precedence: Tensor, write_weights: Tensor) -> Tensor:
    """Return the temporal links L after a write: L[i, j] is the degree to which slot i was written right after slot j.

    L_t[i, j] = (1 − w(i) − w(j)) L_{t−1}[i, j] + w(i) p_{t−1}(j), with L_t[i, i] = 0 (Graves et al. 2016, Methods).

    Args:
        links: L_{t−1} (B, C, C).
        precedence: p_{t−1} (B, C), the degree to which a slot was the last one written.
        write_weights: w (B, C).
    """
    kept = (1 - write_weights).unsqueeze(-1) + write_weights.neg().unsqueeze(-2)
    links = torch.baddbmm(links * kept, write_weights.unsqueeze(-1), precedence.unsqueeze(-2))
    if torch.compiler.is_compiling():
        return links.masked_fill(torch.eye(links.shape[-1], dtype=torch.bool, device=links.device), 0.0)
    links.diagonal(dim1=-2, dim2=-1).zero_()  # in place: another matrix takes as long as the product
    return links


def _to_single(values: Tensor) -> Tensor:
    """Return values in float32, or in their own dtype if it is more precise."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
