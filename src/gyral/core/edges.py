"""Typed edges between the steps of a sequence, such as those between mentions of the same entity."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gyral.core.errors import UserError


class Edge(NamedTuple):
    """An edge between two steps of a sequence.

    Attributes:
        source, target: The steps, from 0; the source is the earlier one.
        type: The type, from 1; type 0 is the edge from each step to the next, which is never listed.
    """

    source: int
    target: int
    type: int = 1


class Edges(NamedTuple):
    """The edges of B sequences of T steps, with E types, as distances between the steps that they join.

    A distance of 0 means: no edge. D and D' are the most edges of one type into and out of a step.

    Attributes:
        earlier: (T, B, E, D) integers; an edge to step t comes from step t − distance.
        later: (T, B, E, D') integers; the same edges at their sources: an edge from step t goes to step t + distance.
            The backward direction of a network reads them. None: computed from `earlier` where they are needed.
    """

    earlier: Tensor
    later: Tensor | None = None

    def inverted(self) -> Tensor:
        """Return `later`."""
        return invert(self.earlier) if self.later is None else self.later


def invert(distances: Tensor) -> Tensor:
    """Return distances to later steps (T, B, E, D') for distances (T, B, E, D) to earlier steps, of the same edges.

    Edges from before the first step have no source among the steps, and are left out.
    """
    steps, rows, types, _ = distances.shape
    target, row, kind, slot = distances.nonzero(as_tuple=True)
    distance = distances[target, row, kind, slot]
    source = target - distance
    inside = source >= 0
    place = (source * rows + row) * types + kind
    return _place(place[inside], distance[inside], steps * rows * types).view(steps, rows, types, -1)


def check_edges(name: str, edges: Sequence[Edge], steps: int, types: int) -> None:
    """Raise `UserError`, with the name of the document and the edge, if an edge is not one of `types` or of `steps`."""
    for edge in edges:
        source, target, kind = edge
        shown = f"{name}: edge from step {source} to step {target} of type {kind}"
        if not (0 <= source < steps and 0 <= target < steps):
            raise UserError(f"{shown}: the steps must be from 0 to {steps - 1}")
        if source >= target:
            raise UserError(f"{shown}: the source must be before the target")
        if not 1 <= kind <= types:
            raise UserError(f"{shown}: the type must be from 1 to {types}")


def encode_edges(edges: Sequence[Sequence[Edge]], steps: int, types: int) -> Edges:
    """Return the edges of B sequences as batch-first distances (B, T, E, D) and (B, T, E, D').

    Args:
        edges: The edges of each sequence, which `check_edges` accepts.
        steps: T.
        types: E.
    """
    row = torch.tensor([row for row, own in enumerate(edges) for _ in own], dtype=torch.int64)
    flat = torch.tensor([edge for own in edges for edge in own], dtype=torch.int64).view(-1, 3)
    return place_edges(row, flat, len(edges), steps, types)


def place_edges(row: Tensor, edges: Tensor, rows: int, steps: int, types: int) -> Edges:
    """Return the edges of B sequences, which are listed in one table, in the form of `encode_edges`.

    Args:
        row: (n,) integers, the sequence of each edge.
        edges: (n, 3) integers: source, target and type of each edge.
        rows: B.
        steps: T.
        types: E.
    """
    source, target, kind = edges.unbind(1)
    ends = (
        _place((row * steps + end) * types + kind - 1, target - source, rows * steps * types)
        for end in (target, source)
    )
    return Edges(*(distances.view(rows, steps, types, -1) for distances in ends))


def _place(place: Tensor, values: Tensor, places: int) -> Tensor:
    """Return the values (n,) at their places (n,), in the given order, as (places, most values of a place), else 0."""
    order = place.argsort(stable=True)
    place, values = place[order], values[order]
    count = torch.bincount(place, minlength=places)
    slot = torch.arange(len(place), device=place.device) - (count.cumsum(0) - count)[place]
    found = values.new_zeros(places, max(int(count.max()), 1))
    found[place, slot] = values
    return found
