"""Typed edges between steps: encoding, inversion, checks."""

import random

import pytest
import torch

from gyral.core.edges import Edge, check_edges, encode_edges, invert
from gyral.core.errors import UserError
from tests.helpers.loops import for_each

FIRST = (Edge(0, 3), Edge(1, 3), Edge(0, 2, 2))
SECOND = (Edge(2, 3, 2),)


def listed(distances: torch.Tensor, sign: int) -> set[tuple[int, Edge]]:
    """Return the edges, each with its row, of distances (B, T, E, D) to earlier (−1) or later (1) steps."""
    found = set()
    for row, step, kind, slot in distances.nonzero().tolist():
        other = step + sign * int(distances[row, step, kind, slot])
        found.add((row, Edge(min(step, other), max(step, other), kind + 1)))
    return found


def test_edges_become_distances_at_both_ends() -> None:
    earlier, later = encode_edges([FIRST, SECOND, ()], steps=4, types=2)
    assert later is not None
    assert earlier.shape == (3, 4, 2, 2)  # two edges of type 1 enter at step 3
    assert later.shape == (3, 4, 2, 1)
    assert earlier[0, 3].tolist() == [[3, 2], [0, 0]]
    expected = {*((0, edge) for edge in FIRST), *((1, edge) for edge in SECOND)}
    assert listed(earlier, -1) == listed(later, 1) == expected


def test_without_edges_there_is_one_empty_place() -> None:
    earlier, later = encode_edges([(), ()], steps=3, types=1)
    assert later is not None
    assert earlier.shape == later.shape == (2, 3, 1, 1)
    assert not earlier.any()


def test_inverted_edges_are_those_at_their_sources() -> None:
    uniform = random.Random(0)
    edges = [
        sorted({Edge(*sorted(uniform.sample(range(9), 2)), uniform.randint(1, 3)) for _ in range(12)}) for _ in range(4)
    ]
    earlier, later = encode_edges(edges, steps=9, types=3)
    assert later is not None
    found = invert(earlier.transpose(0, 1)).transpose(0, 1)
    assert found.shape == later.shape
    assert listed(found, 1) == listed(later, 1)


def test_edges_from_before_the_first_step_are_left_out() -> None:
    assert invert(torch.tensor([[[[1]]], [[[1]]], [[[3]]]])).flatten().tolist() == [1, 0, 0]


@for_each(
    "given",
    [
        (Edge(1, 1), "edge from step 1 to step 1 of type 1: the source must be before the target"),
        (Edge(2, 1), "edge from step 2 to step 1 of type 1: the source must be before the target"),
        (Edge(-1, 1), "edge from step -1 to step 1 of type 1: the steps must be from 0 to 3"),
        (Edge(1, 4), "edge from step 1 to step 4 of type 1: the steps must be from 0 to 3"),
        (Edge(0, 1, 0), "edge from step 0 to step 1 of type 0: the type must be from 1 to 2"),
        (Edge(0, 1, 3), "edge from step 0 to step 1 of type 3: the type must be from 1 to 2"),
    ],
)
def test_other_edges_are_refused_by_document_and_edge(given: tuple[Edge, str]) -> None:
    edge, reason = given
    check_edges("news", FIRST, steps=4, types=2)
    with pytest.raises(UserError) as raised:
        check_edges("news", [*FIRST, edge], steps=4, types=2)
    assert str(raised.value) == f"news: {reason}"
