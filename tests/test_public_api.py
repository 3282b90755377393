"""The names of `gyral`: complete, lazy, and without Hydra and Lightning until they are needed."""

import ast
import sys
from pathlib import Path

import pytest

import gyral
from gyral.nn.layers import Layer
from tests.helpers.running import spawn

HEAVY = ("hydra", "omegaconf", "pytorch_lightning", "lightning_fabric", "torchmetrics", "pydantic", "matplotlib")


@pytest.mark.parametrize("name", gyral.__all__)
def test_every_name_is_importable(name: str) -> None:
    assert getattr(gyral, name).__name__ == name
    assert name in dir(gyral)


def test_every_layer_and_its_cell_are_public() -> None:
    for layer in Layer.__subclasses__():
        if layer.__module__ != Layer.__module__:
            continue  # another test's own
        assert {layer.__name__, layer.cell_class.__name__} <= set(gyral.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(gyral.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {(alias.name, node.module) for node in block.body for alias in node.names}
    assert imported == set(gyral._MODULE_OF.items())
    assert {name for name, _ in imported} == set(gyral.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'gyral' has no attribute 'RUMM'$"):
        _ = gyral.RUMM
    with pytest.raises(ImportError, match="cannot import name 'RUMM'"):
        exec("from gyral import RUMM")


def test_layers_and_cells_import_neither_hydra_nor_lightning() -> None:
    names = [name for name in gyral.__all__ if name != "load"]
    loaded = f"[name for name in {HEAVY!r} if name in sys.modules]"
    run = "import sys; from torch import zeros; RUM(3, 4)(zeros(2, 1, 3))"
    code = f"from gyral import {', '.join(names)}; {run}; print({loaded})"
    outcome = spawn("-c", code)
    assert (outcome.status, outcome.out.strip()) == (0, "[]"), outcome.err
    assert "hydra" in sys.modules, "the names of the modules are not those that are imported"
