"""Functions of whole sequences that several families of kernels share."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from gyral.ops.compiler import is_traced


def split_keep(keep: Tensor | None) -> tuple[Tensor | None, float]:
    """Return zoneout as a mask of several dimensions or None, and as a probability or 0."""
    if keep is None or keep.dim() > 0:
        return keep, 0.0
    return None, float(keep)


def reachable_since(starts: Tensor | None, past: int) -> Tensor | None:
    """Return the first step (T, B) that each step can read: the last start, or −`past` before the first start.

    Args:
        starts: (T, B) bool, True where the state is reset before the step. None: every step is reachable.
        past: Number of values from before the first step.
    """
    if starts is None:
        return None
    time = torch.arange(starts.shape[0], device=starts.device).unsqueeze(1)
    return torch.where(starts, time, -past).cummax(0).values


def marked_since_start(marks: Tensor, starts: Tensor | None) -> Tensor:
    """Return whether a step (T, B) has a mark (T, B), or one before it and since the last start (T, B)."""
    count = marks.to(torch.int64).cumsum(0)
    if starts is None:
        return count > 0
    return count > torch.where(starts, count - marks.to(torch.int64), 0).cummax(0).values


def spoil(values: Tensor, rows: Tensor) -> Tensor:
    """Return values (…, N, …) with NaN where the mask (…) is True."""
    spoiling = torch.where(rows, torch.nan, 0.0).to(values.dtype)
    return values + spoiling.view(*rows.shape, *[1] * (values.dim() - rows.dim()))


def is_finite(*tensors: Tensor | None) -> bool:
    """Return whether no tensor has NaN or infinity; for a compiler, which knows no values, True."""
    return is_traced() or all(tensor is None or bool(tensor.detach().sum().isfinite()) for tensor in tensors)


def zero_beyond(outputs: Tensor, lengths: Tensor | None) -> Tensor:
    """Return outputs (T, B, N) with zeros beyond the lengths (B,)."""
    if lengths is None:
        return outputs
    ended = torch.arange(outputs.shape[0], device=outputs.device).unsqueeze(1) >= lengths
    return outputs.masked_fill(ended.unsqueeze(2), 0.0)


def last_step(sequence: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the values (B, …) of a sequence (T, B, …) at the last step of each row, given the lengths (B,)."""
    if lengths is None:
        return sequence[-1]
    # not len(), which would fix the number of rows of an exported program
    return sequence[lengths - 1, torch.arange(lengths.shape[0], device=sequence.device)]


def shift(first: Tensor, sequence: Tensor) -> Tensor:
    """Return the predecessors of the steps (T, B, …): `first` (B, …), then the steps except for the last."""
    # slices with T − 1 steps would make compilers assume that T is not 2
    return torch.cat((first.unsqueeze(0), sequence))[:-1]


def mark_first(starts: Tensor | None, fresh: Tensor, steps: int) -> Tensor:
    """Return the starts (T, B), all False if None, where the first step is also one in the rows with `fresh` (B,)."""
    if starts is None:
        starts = torch.zeros(steps, fresh.shape[0], dtype=torch.bool, device=fresh.device)
    time = torch.arange(steps, device=fresh.device).unsqueeze(1)
    return starts | ((time == 0) & fresh)


def reverse(sequence: Any, lengths: Tensor | None) -> Any:
    """Reverse the leaves (T, B, …) in time, each sequence within its own length; padding stays at the end."""
    if lengths is None:
        return tree_map_only(Tensor, lambda leaf: leaf.flip(0), sequence)

    def reverse_leaf(leaf: Tensor) -> Tensor:
        steps, rows = leaf.shape[:2]
        time = torch.arange(steps, device=leaf.device).unsqueeze(1)
        source = torch.where(time < lengths, lengths - 1 - time, time)
        # whole vectors at once: `gather` looks up an index for each number
        index = source * rows + torch.arange(rows, device=leaf.device)
        return leaf.flatten(0, 1).index_select(0, index.flatten()).view_as(leaf)

    return tree_map_only(Tensor, reverse_leaf, sequence)


def reverse_starts(starts: Tensor, lengths: Tensor | None) -> Tensor:
    """Return the starts (T, B) of the segments for a sequence that `reverse` has reversed.

    The last step of a segment, before which the next one begins, becomes its first. A row has no start at its own last
    step, where the backward direction reads the state passed in.
    """
    return shift(torch.zeros_like(starts[0]), reverse(starts, lengths))
