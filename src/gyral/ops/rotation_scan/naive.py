"""The scan of `gyral.ops.rotation_scan` in plain torch, in chunks of steps: matrix products and one triangular solve.

It runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.min_gated import blend
from gyral.ops.rotation import direction, dot, perpendicular
from gyral.ops.sequences import marked_since_start, spoil

CHUNK = 64  # steps; R is corrected before the first step of every chunk but the first


def rotation_scan(
    parts: Tensor,
    memory: Tensor,
    h0: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    double_angle: bool = True,
    activation: str = "relu",
) -> tuple[Tensor, Tensor, Tensor]:
    """Run all steps: by kernels where there are some, else in plain torch, in chunks.

    T steps, B batch size, N hidden size, H heads of d numbers. If H d > N, zeros fill the last heads. A kernel keeps R
    and h before every 64th step for its backward pass, and computes the others again.

    R is a product of rotations, from which rounding moves it away. Before every 64th step, R ← R (3I − RᵀR) / 2
    corrects it. The derivative of this step is that of the identity.

    Args:
        parts: (T, B, 4N), [τ; u; q; ε], u before its sigmoid.
        memory: (B, H, d, d), R before the first step, orthogonal.
        h0: (B, N), h before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} = 0 and R_{t−1} = I.
        double_angle: Whether w₁ = ε̂ and w₂ = τ̂: a rotation by twice the angle from ε to τ. Otherwise w₂ is the
            direction of ε̂ + τ̂: a rotation by that angle.
        activation: f: "relu", "tanh", "sigmoid" or "softsign".

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and after the last step of each row R (B, H, d, d) and
        h (B, N).
    """
    dtype, parts = parts.dtype, parts.to(torch.promote_types(parts.dtype, torch.float32))
    steps, batch, size = len(parts), *h0.shape
    target, gate, query, embedded = parts.split(size, dim=-1)
    heads, width = memory.shape[1:3]
    normals = reflections(split(embedded, heads, width), split(target, heads, width), double_angle)
    time = torch.arange(steps, device=parts.device).unsqueeze(1)
    is_start = torch.zeros(steps, batch, dtype=torch.bool, device=parts.device) if starts is None else starts
    if lengths is not None:  # a step beyond the length rotates by 0
        has_ended = time >= lengths
        normals = normals.masked_fill(has_ended[..., None, None, None], 0.0)
        is_start = is_start & ~has_ended
    # zero times NaN is NaN, in the products of a chunk: such rotations are left out, and spoil their row in the end
    usable = normals.isfinite().flatten(2).all(-1)
    normals = torch.where(usable[..., None, None, None], normals, 0.0)
    rotated, final = rotate(normals, split(query, heads, width), memory.to(parts.dtype), is_start)
    is_spoiled = marked_since_start(~usable, is_start)
    rotated, final = spoil(rotated, is_spoiled), spoil(final, is_spoiled[-1])
    outputs, hidden = blend(
        embedded + merge(rotated, size), gate, h0.to(parts.dtype), lengths=lengths, starts=starts, activation=activation
    )
    return outputs.to(dtype), final.to(dtype), hidden.to(dtype)


def split(vector: Tensor, heads: int, width: int) -> Tensor:
    """Return the heads (…, H, d) of a vector (…, N); zeros fill the last ones."""
    return F.pad(vector, (0, heads * width - vector.shape[-1])).unflatten(-1, (heads, width))


def merge(vectors: Tensor, size: int) -> Tensor:
    """Return the vector (…, N) of heads (…, H, d)."""
    return vectors.flatten(-2)[..., :size]


def reflections(embedded: Tensor, target: Tensor, double_angle: bool) -> Tensor:
    """Return unit normals [w₂; w₁] (…, H, 2, d) of the mirrors whose product H_{w₂} H_{w₁} is the rotation of a step.

    Both are zero, and the product is the identity, where ε or τ (…, H, d) is zero. For the single angle, if the two are
    opposite to within 8 machine epsilons, w₂ is the axis of the smallest coordinate of ε, orthogonalized, as in
    `gyral.ops.rotation.plane`.
    """
    with torch.no_grad():
        are_nonzero = direction(embedded).nonzero & direction(target).nonzero
    first, second = unit(embedded, are_nonzero), unit(target, are_nonzero)
    if not double_angle:
        total = first + second
        with torch.no_grad():
            limit = (8 * torch.finfo(total.dtype).eps) ** 2
            is_opposite = (dot(total, total) < limit) & are_nonzero
        second = unit(total, are_nonzero & ~is_opposite) + is_opposite * perpendicular(first)
    return torch.stack((second, first), dim=-2)


def unit(vector: Tensor, where: Tensor) -> Tensor:
    """Return the direction of vectors (…, N), and zero where `where` (…, 1) is False.

    The unit vectors of `gyral.ops.rotation.direction` are too long in float32, by 7e-8 in the mean: in 10⁴ reflections
    that adds up to 1e-3. Hence their derivative, but not their values.
    """
    found = direction(vector, where=where).unit
    with torch.no_grad():
        difference = F.normalize(vector.to(found.dtype), dim=-1, eps=torch.finfo(found.dtype).tiny) * where - found
    return found + difference


def reflect(memory: Tensor, normal: Tensor) -> Tensor:
    """Return R (I − 2wwᵀ) for R (…, d, d) and w (…, d), a unit vector or zero."""
    return memory - 2 * (memory @ normal.unsqueeze(-1)) * normal.unsqueeze(-2)


def correct(memory: Tensor) -> Tensor:
    """Return the orthogonal matrix next to R (…, d, d), which rounding has moved a little: R (3I − RᵀR) / 2.

    Its derivative is that of the identity.
    """
    with torch.no_grad():
        error = (memory - memory @ (memory.mT @ memory)) / 2
    return memory + error


def rotate(normals: Tensor, query: Tensor, memory: Tensor, is_start: Tensor) -> tuple[Tensor, Tensor]:
    """Return R_t q_t for all steps and the last R.

    With the normals of a chunk's 2C mirrors, in order, as the rows of W, the product of the first m of them is
    I − Wₘᵀ Tₘ Wₘ with T⁻¹ = ½I + the strict upper triangle of WWᵀ (Schreiber and Van Loan 1989). All steps of a chunk
    are one triangular solve; R at the beginnings of the chunks follows from one product for each chunk.

    Args:
        normals: (T, B, H, 2, d), see `reflections`.
        query: (T, B, H, d).
        memory: (B, H, d, d), R before the first step.
        is_start: (T, B), True where R before the step is the identity.

    Returns:
        The rotated queries (T, B, H, d), and R (B, H, d, d) after the last step.
    """
    steps, width = len(query), query.shape[-1]
    length = min(CHUNK, steps)
    chunks = -(-steps // length)
    padding = chunks * length - steps  # steps that rotate by 0
    normals, query = (F.pad(each, (*[0, 0] * (each.dim() - 1), 0, padding)) for each in (normals, query))
    is_start = F.pad(is_start, (0, 0, 0, padding))
    # (chunks, B, H, 2C or C, d), and the number of resets in the chunk up to a step (chunks, B, 1, C)
    rows = normals.unflatten(0, (chunks, length)).permute(0, 2, 3, 1, 4, 5).flatten(3, 4)
    query = query.unflatten(0, (chunks, length)).permute(0, 2, 3, 1, 4)
    segment = is_start.unflatten(0, (chunks, length)).long().cumsum(1).transpose(1, 2).unsqueeze(2)

    of_row = segment.repeat_interleave(2, dim=-1)
    step_of_row = torch.arange(length, device=query.device).repeat_interleave(2)
    in_segment = of_row.unsqueeze(-1) == segment.unsqueeze(-2)
    is_before = step_of_row.unsqueeze(1) <= torch.arange(length, device=query.device)
    overlap = (rows @ rows.mT).triu(1) * (of_row.unsqueeze(-1) == of_row.unsqueeze(-2))
    inverse = overlap + 0.5 * torch.eye(2 * length, dtype=query.dtype, device=query.device)
    last = rows * (of_row == segment[..., -1:]).unsqueeze(-1)
    right = torch.cat(((rows @ query.mT) * (in_segment & is_before), last), dim=-1)
    solved = torch.linalg.solve_triangular(inverse, right, upper=True)
    turned = query - solved[..., :length].mT @ rows
    product = torch.eye(width, dtype=query.dtype, device=query.device) - last.mT @ solved[..., length:]

    begins_anew = (segment[..., -1] > 0).unsqueeze(-1)  # (chunks, B, 1, 1)
    before = []
    for chunk in range(chunks):
        if chunk > 0:
            memory = correct(memory)
        before.append(memory)
        memory = torch.where(begins_anew[chunk].unsqueeze(-1), product[chunk], memory @ product[chunk])
    rotated = torch.where((segment == 0).unsqueeze(-1), turned @ torch.stack(before).mT, turned)
    return rotated.permute(0, 3, 1, 2, 4).flatten(0, 1)[:steps], memory
