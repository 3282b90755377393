"""The delta rule of `gyral.ops.delta` in plain torch: one step, and all steps in chunks.

The chunk form is the definition of the kernels, the backend where there are none, and gives their second derivatives.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.sequences import marked_since_start, spoil

SCALAR_CHUNK = 64  # micro-steps of a chunk, whose pairs take C² numbers
VECTOR_CHUNK = 16  # the same with a decay for each key channel, where they take C² K numbers


EPSILON = 1e-6  # of unit vectors, as in the published models


def expanded(
    q: Tensor, k: Tensor, v: Tensor, erase: Tensor | None, write: Tensor | None, unit: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return q̂, k̂, v̂ and r of `gyral.ops.delta`, for one step or for all."""
    if unit:
        q, k = to_unit(q) * q.shape[-1] ** -0.5, to_unit(k)
    if erase is not None and erase.dim() < k.dim():
        erase = erase.unsqueeze(-1) * k
    return q, k, v if write is None else write.unsqueeze(-1) * v, erase


def to_unit(vectors: Tensor) -> Tensor:
    """Return k / √(Σ k² + 10⁻⁶) for vectors k (…, K)."""
    return vectors * torch.rsqrt(vectors.square().sum(-1, keepdim=True) + EPSILON)


def delta_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    memory: Tensor,
    decay: Tensor | None = None,
    erase: Tensor | None = None,
    write: Tensor | None = None,
    unit: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, H, V) and the new memory (B, H, K, V) of one step; see `gyral.ops.delta.delta_scan`."""
    q, k, v, erase = expanded(q, k, v, erase, write, unit)
    groups = memory.shape[1] // q.shape[1]
    q, k = q.repeat_interleave(groups, 1), k.repeat_interleave(groups, 2)
    if decay is not None:
        rates = decay.exp()
        memory = memory * (rates.unsqueeze(-1) if decay.dim() == 3 else rates[..., None, None])
    for j in range(k.shape[1]):
        value = v[:, j]
        if erase is not None:
            read = erase[:, j].repeat_interleave(groups, 1)
            value = value - (read.unsqueeze(-2) @ memory).squeeze(-2)
        memory = memory + k[:, j].unsqueeze(-1) * value.unsqueeze(-2)
    return (q.unsqueeze(-2) @ memory).squeeze(-2), memory


def delta_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s0: Tensor,
    decay: Tensor | None = None,
    erase: Tensor | None = None,
    write: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    unit: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    T steps, B batch size, H heads, K and V the sizes of keys and values, n micro-steps of a step. The G heads of keys
    divide H: head h has the keys of head ⌊h G / H⌋.

    Args:
        q: (T, B, G, K).
        k: (T, B, n, G, K).
        v: (T, B, n, H, V).
        s0: (B, H, K, V), the memory before the first step.
        decay: γ, (T, B, H) or (T, B, H, K), or None stands for zeros.
        erase: e, (T, B, n, G), or r, (T, B, n, G, K), or None stands for zeros.
        write: w, (T, B, n, H), or None stands for ones.
        unit: Whether k̂ and q̂ are unit vectors.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: its memory counts as zero.

    Returns:
        outputs (T, B, H, V), y_t, zero beyond the lengths, and the memory (B, H, K, V) after the last step of each row.
    """
    # Within a chunk let G_i be the sum of γ up to micro-step i, L_ij = Σ_d r_id k_jd exp(G_id − G_jd) for j < i, and
    # S₀ the memory before the chunk. Then, with the hats left out,
    #
    #     (I + L) U = v − (r ⊙ e^G) S₀
    #     y_t = (q_t ⊙ e^{G_i})ᵀ S₀ + Σ_{j ≤ i} Σ_d q_td k_jd exp(G_id − G_jd) U_j,  i the last micro-step of step t
    #     S = e^{G_C} ⊙ S₀ + Σ_j (k_j ⊙ e^{G_C − G_j}) U_jᵀ.
    #
    # A pair of micro-steps on both sides of a start counts as zero, and so does S₀ behind the first start of the chunk.
    # Zero times NaN is NaN. So steps that are not finite are left out, and spoil their row up to the next start.
    q, k, v, erase = expanded(q, k, v, erase, write, unit)
    if decay is not None:  # below the limit e^γ is 0; of −∞, the differences of sums would be NaN
        limits = torch.finfo(decay.dtype)
        decay = decay.clamp(min=math.log(limits.tiny * limits.eps) - 1)
    decay, k, v, erase, usable = _usable(decay, k, v, erase)
    steps, batch, micro = k.shape[:3]
    device = k.device
    is_vector = decay is not None and decay.dim() == 4
    size = max(1, (VECTOR_CHUNK if is_vector else SCALAR_CHUNK) // micro)
    inside = torch.ones(steps, batch, dtype=torch.bool, device=device)
    if lengths is not None:
        inside = torch.arange(steps, device=device).unsqueeze(1) < lengths
        v = v.masked_fill(~inside[:, :, None, None, None], 0.0)
        erase = None if erase is None else erase.masked_fill(~inside[:, :, None, None, None], 0.0)
        if decay is not None:
            decay = decay.masked_fill(~inside.view(steps, batch, *[1] * (decay.dim() - 2)), 0.0)
    groups = v.shape[3] // q.shape[2]
    q, k = (_in_chunks(tensor, size).repeat_interleave(groups, 2) for tensor in (q.unsqueeze(2), k))
    v = _in_chunks(v, size)
    erase = None if erase is None else _in_chunks(erase, size).repeat_interleave(groups, 2)

    # the number of starts since the first step of the chunk, of each micro-step, (chunks, B, 1, C)
    starts = torch.zeros_like(inside) if starts is None else starts & inside
    segment = _in_chunks(starts.to(torch.int64)[:, :, None, None, None], size).squeeze(-1).cumsum(-1)
    of_step, of_micro_step = segment, segment.repeat_interleave(micro, -1)
    last = torch.arange(1, size + 1, device=device) * micro - 1  # the last micro-step of each step
    places = torch.arange(size * micro, device=device)
    earlier = (of_micro_step.unsqueeze(-1) == of_micro_step.unsqueeze(-2)) & (places[:, None] > places)
    readable = (of_step.unsqueeze(-1) == of_micro_step.unsqueeze(-2)) & (last[:, None] >= places)

    if decay is None:
        decay = v.new_zeros(steps, batch, v.shape[2])
    if decay.dim() == 3:
        # In float64: the gradient of a sum is a difference of large numbers. Those of channels would take much memory.
        decay = decay.unsqueeze(-1) if device.type == "mps" else decay.unsqueeze(-1).double()
    sums = _in_chunks(decay.unsqueeze(2), size).cumsum(-2)  # G at the last micro-step of each step
    of_all = sums.repeat_interleave(micro, -2)
    carried = sums.to(v.dtype).exp() * (of_step == 0).unsqueeze(-1)  # e^G, zero behind a start
    total, ending = sums[..., -1:, :], (of_micro_step == of_micro_step[..., -1:]).unsqueeze(-1)
    remaining = torch.where(ending, total - of_all, -torch.inf).to(v.dtype).exp()

    attention = _pairs(q, k, sums, of_all, readable)
    solved = v
    if erase is not None:
        system = torch.eye(size * micro, dtype=v.dtype, device=device) + _pairs(erase, k, of_all, of_all, earlier)
        behind = erase * carried.repeat_interleave(micro, -2)
        both = torch.linalg.solve_triangular(system, torch.cat((v, behind), dim=-1), upper=False, unitriangular=True)
        solved, behind = both.split((v.shape[-1], erase.shape[-1]), dim=-1)
    q, k, kept = q * carried, (k * remaining).mT, carried[..., -1:, :].mT

    memory, outputs = s0, []
    for chunk in range(len(q)):
        values = solved[chunk] if erase is None else solved[chunk] - behind[chunk] @ memory
        outputs.append(q[chunk] @ memory + attention[chunk] @ values)
        memory = kept[chunk] * memory + k[chunk] @ values
    # (chunks, B, H, C, V) → (T, B, H, V)
    found = torch.stack(outputs).permute(0, 3, 1, 2, 4).flatten(0, 1)[:steps]
    is_spoiled = marked_since_start(~usable & inside, starts)
    found, memory = spoil(found, is_spoiled), spoil(memory, is_spoiled[-1])
    return found.masked_fill(~inside[:, :, None, None], 0.0), memory


def _usable(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Return tensors (T, B, …) with zeros at the steps where one is not finite, and a mask (T, B) of the others."""
    usable = torch.stack([each.isfinite().flatten(2).all(-1) for each in tensors if each is not None]).all(0)
    found = [
        each if each is None else torch.where(usable.view(*usable.shape, *[1] * (each.dim() - 2)), each, 0.0)
        for each in tensors
    ]
    return *found, usable


def _in_chunks(tensor: Tensor, size: int) -> Tensor:
    """Return (T, B, n, H, W) as (chunks, B, H, size · n, W), with zeros behind the last step."""
    tensor = F.pad(tensor, (0, 0) * 4 + (0, -len(tensor) % size))
    chunks = tensor.unflatten(0, (-1, size))
    return chunks.permute(0, 2, 4, 1, 3, 5).flatten(3, 4)


def _pairs(a: Tensor, b: Tensor, sums: Tensor, others: Tensor, mask: Tensor) -> Tensor:
    """Return Σ_d a_id b_jd exp(sums_id − others_jd) where the mask (…, i, j) is true, else zero."""
    # masked before exp: elsewhere the difference is positive, and overflows
    if sums.shape[-1] == 1:
        return (a @ b.mT) * torch.where(mask, sums - others.mT, -torch.inf).to(a.dtype).exp()
    differences = torch.where(mask.unsqueeze(-1), sums.unsqueeze(-2) - others.unsqueeze(-3), -torch.inf)
    return torch.einsum("...id,...jd,...ijd->...ij", a, b, differences.exp())
