"""The scan of `gyral.ops.block_scan` in plain torch, parallel over time.

The kernels compute the same, one step after the other. This code runs where there is no kernel, and gives the kernels'
second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.diagonal.naive import marked_within, select_unmarked
from gyral.ops.sequences import mark_first


def block_scan(
    change: Tensor,
    values: Tensor,
    h0: Tensor,
    fresh: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps.

    T steps, B batch size, N units in ⌈N/b⌉ blocks; the last one may have fewer units than b.

    Args:
        change: The rows of A_t, (T, B, N, b): what a unit reads from the units of its block.
        values: (T, B, N), h_t at the first steps of segments, whatever the state before them; other entries have no
            effect. Without `starts` only the first step can be one: (1, B, N).
        h0: (B, N), the state before the first step.
        fresh: (B,) int64, positive where the first step is the first one of a segment.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True where a step is the first one of a segment.

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and the state (B, N) after the last step of each row.
    """
    # Two steps (M, v) and then (M', v') are one step (M'M, M'v + v'). Each pass doubles the number of steps that an
    # entry has composed, so that log₂ T passes give all outputs (Hillis and Steele 1986).
    (steps, batch, size), block = change.shape[:3], change.shape[3]
    is_first = mark_first(starts, fresh > 0, steps)
    matrices = to_blocks(change) + torch.eye(block, dtype=change.dtype, device=change.device)
    matrices = matrices.masked_fill(is_first[..., None, None, None], 0.0)
    has_first: Tensor | None = is_first[..., None, None]  # of the steps that an entry has composed
    vectors = split(torch.where(is_first.unsqueeze(-1), values, 0.0), block)
    added = select_unmarked(times(matrices[:1], split(h0, block)), has_first)
    vectors = torch.cat((vectors[:1] + added, vectors[1:]))
    reach = 1
    while reach < steps:
        added = select_unmarked(times(matrices[reach:], vectors[:-reach]), has_first, reach)
        vectors = torch.cat((vectors[:reach], vectors[reach:] + added))
        matrices = torch.cat((matrices[:reach], matrices[reach:] @ matrices[:-reach]))
        has_first = marked_within(has_first, reach)
        reach *= 2
    outputs = vectors.flatten(2)[..., :size]
    if lengths is None:
        return outputs, outputs[-1]
    final = outputs[lengths - 1, torch.arange(batch, device=outputs.device)]
    has_ended = torch.arange(steps, device=outputs.device).unsqueeze(1) >= lengths
    return outputs.masked_fill(has_ended.unsqueeze(2), 0.0), final


def split(vector: Tensor, block: int) -> Tensor:
    """Return the blocks (…, ⌈N/b⌉, b) of a vector (…, N); zeros fill the last one."""
    return F.pad(vector, (0, -vector.shape[-1] % block)).unflatten(-1, (-1, block))


def to_blocks(rows: Tensor) -> Tensor:
    """Return the matrices (…, ⌈N/b⌉, b, b) of N rows (…, N, b); zeros fill the last one."""
    size, block = rows.shape[-2:]
    return F.pad(rows, (0, 0, 0, -size % block)).unflatten(-2, (-1, block))


def times(matrices: Tensor, vectors: Tensor) -> Tensor:
    """Return the products (…, b) of matrices (…, b, b) and vectors (…, b)."""
    return (matrices @ vectors.unsqueeze(-1)).squeeze(-1)


def step(change: Tensor, values: Tensor, hidden: Tensor, is_first: Tensor) -> Tensor:
    """Return the state (B, N) after one step: h + A h, or the values (B, N) where `is_first` (B,)."""
    block, size = change.shape[-1], hidden.shape[-1]
    changed = times(to_blocks(change), split(hidden, block)).flatten(-2)[..., :size]
    return torch.where(is_first.unsqueeze(-1), values, hidden + changed)
