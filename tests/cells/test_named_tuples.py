"""Named tuples of cells, above all their states, in `torch.save`, `torch.export.save`, `pickle` and `copy`."""

import copy
import importlib
import io
import pickle
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_structure, treespec_dumps, treespec_loads

import gyral
from docs.uses import LAYERS

CELLS = """
from typing import NamedTuple

import torch
from torch import Tensor

from gyral.cells.base import RecurrentCell


class Sums(NamedTuple):
    total: Tensor


class SumCell(RecurrentCell):
    state = Sums

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.scale = torch.nn.Parameter(torch.ones(hidden_size))

    def init_state(self, batch_size):
        return self.state(self.zeros(batch_size, self.hidden_size))

    def project(self, inputs):
        return inputs.sum(-1, keepdim=True) * self.scale

    def step(self, projected, state, constants):
        total = state[0] + projected
        return total, self.state(total)


class NestedCell(SumCell):
    class State(NamedTuple):
        total: Tensor

    state = State
"""


def saved_by_torch(value: Any) -> Any:
    torch.save(value, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=True)


def in_a_tree(value: Any) -> Any:
    """Return the value after its structure was written and read as `torch.export.save` does."""
    return treespec_loads(treespec_dumps(tree_structure(value))).unflatten(tree_leaves(value))


WAYS = {
    "torch.save": saved_by_torch,
    "torch.export.save": in_a_tree,
    "pickle": lambda value: pickle.loads(pickle.dumps(value)),
    "pickle, protocol 2": lambda value: pickle.loads(pickle.dumps(value, 2)),
    "multiprocessing": lambda value: pickle.loads(ForkingPickler.dumps(value)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def assert_kept(value: Any) -> None:
    value = tree_map(torch.Tensor.detach, value)
    for name, way in WAYS.items():
        found = way(value)
        assert type(found) is type(value), name
        assert tree_structure(found) == tree_structure(value), name
        torch.testing.assert_close(tree_leaves(found), tree_leaves(value), rtol=0, atol=0)


def test_states_and_inputs_are_saved_and_copied() -> None:
    for layer in LAYERS.values():
        assert_kept(layer.make(3, 4).init_state(2))
    values = torch.randn(3, 2, 4)
    assert_kept(gyral.MaskedInputs(values, torch.ones(3, 2, dtype=torch.bool)))
    distances = torch.zeros(3, 2, 1, 1, dtype=torch.int64)
    assert_kept(gyral.LinkedInputs(values, gyral.Edges(distances, distances)))


def test_a_cell_of_a_user_needs_no_registration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "summing_cells.py").write_text(CELLS, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("summing_cells")
    for cell in (module.SumCell, module.NestedCell):
        layer = gyral.Recurrent(partial(cell, hidden_size=4), 3)
        outputs, state = layer(torch.randn(5, 2, 3))
        assert outputs.shape == (5, 2, 4)
        assert_kept(state)
        assert type(state[0]) is cell.state


def test_a_state_of_a_local_class_is_an_argument_of_an_exported_program() -> None:
    namespace: dict[str, Any] = {"__name__": "no_module"}
    exec(CELLS, namespace)
    state = namespace["NestedCell"](3, 4).init_state(2)
    assert type(in_a_tree(state)) is type(state)
