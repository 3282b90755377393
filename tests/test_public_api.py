"""The names of `gyral`: complete, lazy, and without Hydra and Lightning until they are needed."""

import ast
import importlib
import inspect
import sys
from pathlib import Path

import pytest

import gyral
from gyral.nn import layers
from tests.helpers.running import spawn

HEAVY = ("hydra", "omegaconf", "pytorch_lightning", "lightning_fabric", "torchmetrics", "pydantic", "matplotlib")


@pytest.mark.parametrize("name", gyral.__all__)
def test_every_name_is_importable(name: str) -> None:
    found = getattr(gyral, name)
    assert found.__name__ == (f"gyral.{name}" if name in gyral._FUNCTIONS else name)
    assert callable(found)
    assert name in dir(gyral)


def test_every_layer_and_its_cell_are_public() -> None:
    for name in set(layers.__all__) - {"Layer"}:
        assert {name, getattr(layers, name).cell_class.__name__} <= set(gyral.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(gyral.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {(alias.asname or alias.name, node.module) for node in block.body for alias in node.names}
    assert {name for name, _ in imported} == set(gyral.__all__)
    assert {(name, module) for name, module in imported if name not in gyral._FUNCTIONS} == set(
        gyral._MODULE_OF.items()
    )


@pytest.mark.parametrize("name", gyral._FUNCTIONS)
def test_a_module_that_is_called_has_the_signature_that_type_checkers_see(name: str) -> None:
    tree = ast.parse(Path(gyral.__file__).read_text())
    (alias,) = (
        a for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for a in node.names if a.asname == name
    )
    (module,) = (node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and alias in node.names)
    function = getattr(importlib.import_module(module), alias.name)
    called, declared = inspect.signature(getattr(gyral, name)), inspect.signature(function)
    assert [(p.name, p.default) for p in called.parameters.values()] == [
        (p.name, p.default) for p in declared.parameters.values()
    ]


def test_modules_that_are_called_stay_modules(tmp_path: Path) -> None:
    import gyral.runs.records
    import gyral.train

    assert gyral.runs.run_record.RunRecord
    assert gyral.train.main
    assert len(gyral.runs(tmp_path)) == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'gyral' has no attribute 'RUMM'$"):
        _ = gyral.RUMM
    with pytest.raises(ImportError, match="cannot import name 'RUMM'"):
        exec("from gyral import RUMM")


def test_layers_and_cells_import_neither_hydra_nor_lightning() -> None:
    names = [name for name in gyral.__all__ if name not in ("build", "compose", "load", "runs", "train")]
    loaded = f"[name for name in {HEAVY!r} if name in sys.modules]"
    run = "import sys; from torch import zeros; RUM(3, 4)(zeros(2, 1, 3))"
    code = f"from gyral import {', '.join(names)}; {run}; print({loaded})"
    outcome = spawn("-c", code)
    assert (outcome.status, outcome.out.strip()) == (0, "[]"), outcome.err
    assert "hydra" in sys.modules, "the names of the modules are not those that are imported"


def test_tables_and_configurations_need_no_torch(tmp_path: Path) -> None:
    code = (
        f"import sys, gyral; gyral.runs({str(tmp_path)!r}); gyral.compose(['model=gru']); print('torch' in sys.modules)"
    )
    outcome = spawn("-c", code)
    assert (outcome.status, outcome.out.strip()) == (0, "False"), outcome.err
