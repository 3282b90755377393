"""Rows of states are reset and selected. tests/nn/test_uses.py compares values and gradients of every layer."""

import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gyral
from docs.uses import LAYERS
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each
from tests.helpers.running import ROOT

B, X, N = 3, 2, 4
NETWORKS: dict[str, Any] = {
    "one tensor": partial(gyral.GRU, X, N, 2),
    "named tuple": partial(gyral.RUM, X, N, bidirectional=True, lambd=1.0),
    "nested": partial(gyral.NTM, X, N, slots=3, width=2),
    "cells": partial(Recurrent, partial(gyral.RUMCell, hidden_size=N, lambd=1.0), X, 2),
}


def assert_rows(network: Any, state: Any, expected: list[Any]) -> None:
    """Assert that each row of a state is the row of a state that is given with its number."""
    for leaf, *others in zip(tree_leaves(state), *(tree_leaves(one) for one, _ in expected), strict=True):
        numbers = [number for _, number in expected]
        picked = [other.select(network.batch_dimension, row) for other, row in zip(others, numbers, strict=True)]
        assert torch.equal(leaf, torch.stack(picked, dim=network.batch_dimension))


@for_each("name", NETWORKS)
def test_rows_are_given_as_tensors_arrays_and_lists(name: str) -> None:
    network = NETWORKS[name]()
    with torch.no_grad():
        _, state = network(torch.randn(2, B, X))
    start = network.init_state(B)
    ended = [False, True, False]
    for rows in (ended, np.array(ended), torch.tensor(ended)):
        reset = network.reset_state(state, rows)
        assert type(reset) is type(state)
        assert_rows(network, reset, [(state, 0), (start, 1), (state, 2)])
    assert_rows(network, network.reset_state(None, ended), [(start, 0), (start, 1), (start, 2)])
    for rows in ([2, 0], np.array([2, 0]), torch.tensor([2, 0], dtype=torch.int32)):
        assert_rows(network, network.select_state(state, rows), [(state, 2), (state, 0)])
    assert_rows(network, network.select_state(state, torch.tensor(ended)), [(state, 1)])
    empty = network.select_state(state, [])
    assert {leaf.shape[network.batch_dimension] for leaf in tree_leaves(empty)} == {0}
    reset = network.reset_state(empty, torch.zeros(0, dtype=torch.bool))
    assert [leaf.shape for leaf in tree_leaves(reset)] == [leaf.shape for leaf in tree_leaves(empty)]


def test_rows_that_a_state_does_not_have_are_an_error_of_one_line() -> None:
    layer = gyral.LSTM(X, N)
    _, state = layer(torch.randn(2, B, X))
    bool_needed = r"^rows are {}, must be bool of shape \({}\)"
    for rows, found, size in (
        (torch.zeros(B), r"float32 of shape \(3,\)", "B,"),
        (torch.zeros(B, dtype=torch.uint8), r"uint8 of shape \(3,\)", "B,"),
        ([0, 1], r"int64 of shape \(2,\)", "B,"),
        (True, r"bool of shape \(\)", "B,"),
        ([], r"bool of shape \(0,\)", "3,"),
        ([True], r"bool of shape \(1,\)", "3,"),
    ):
        with pytest.raises(ValueError, match=bool_needed.format(found, size)):
            layer.reset_state(state, rows)
    with pytest.raises(ValueError, match=r"^rows is a NoneType, must be a tensor, an array or a list$"):
        layer.reset_state(state, None)
    for rows in ([3], [-1], [0.0], [True], torch.zeros(B, dtype=torch.uint8), 1):
        with pytest.raises(ValueError, match=r"must be integers from 0 to 2, or bool of shape \(3,\)$"):
            layer.select_state(state, rows)
    for broken in (state.hidden, (state.hidden, state.hidden[0]), None):
        with pytest.raises(ValueError, match=r"^state has tensors of shapes "):
            layer.select_state(broken, [0])
    with pytest.raises(ValueError, match=r"^state has tensors of shapes "):
        layer.reset_state(state.hidden, [True] * B)


@pytest.mark.slow
def test_compilers_trace_changes_of_rows() -> None:
    network = NETWORKS["nested"]()
    with torch.no_grad():
        _, state = network(torch.randn(2, B, X))

    def change(state: Any, ended: Tensor, rows: Tensor) -> Any:
        return network.select_state(network.reset_state(state, ended), rows)

    ended, rows = torch.tensor([True, False, False]), torch.tensor([1, 0, 0])
    found = torch.compile(change, fullgraph=True, backend="aot_eager")(state, ended, rows)
    assert type(found) is type(state)
    assert all(map(torch.equal, tree_leaves(found), tree_leaves(change(state, ended, rows))))


def test_the_documentation_names_the_layers_whose_initial_state_is_not_zero() -> None:
    page = (ROOT / "docs" / "how-to" / "layers.md").read_text(encoding="utf-8")
    (names,) = re.findall(r"[Tt]he initial state is not zero for (.*?)\s+and `RUM` with λ = 1", page, re.DOTALL)
    found = [label for label, one in LAYERS.items() if any(map(torch.any, tree_leaves(one.make(X, N).init_state(1))))]
    assert {*re.findall(r"`(\w+)`", names), "RUM(lambd=1)"} == set(found)
