"""The names of `gyral`: complete, lazy, and without Hydra and Lightning until they are needed."""

import sys
from pathlib import Path

import pytest

import gyral
from gyral.nn import layers
from tests.helpers.running import spawn

SOURCE = Path(gyral.__file__).parent
LIBRARY = [name for name in gyral.__all__ if not name.islower()]
HEAVY = ("hydra", "omegaconf", "pytorch_lightning", "lightning_fabric", "torchmetrics", "pydantic", "matplotlib")


@pytest.mark.parametrize("name", gyral.__all__)
def test_every_public_name_can_be_imported_and_called(name: str) -> None:
    found = getattr(gyral, name)
    assert found.__name__ == name
    assert callable(found)
    assert name in dir(gyral)


def test_every_layer_and_its_cell_are_public() -> None:
    for name in set(layers.__all__) - {"Layer"}:
        assert {name, getattr(layers, name).cell_class.__name__} <= set(gyral.__all__)


def test_type_checkers_see_the_signatures_of_the_public_names(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(
        """
import gyral
from gyral import RUM
reveal_type(gyral.list_runs)
reveal_type(RUM)
gyral.fitt
"""
    )
    own = [SOURCE / "__init__.pyi", SOURCE / "reports" / "frame.py"]  # torch takes 20 s
    read = [*own, *SOURCE.glob("nn/layers/*.py")]
    outcome = spawn("-m", "mypy", "--follow-imports=skip", f"--cache-dir={tmp_path}/cache", tmp_path / "user.py", *read)
    assert "options: typing.Sequence[str] =" in outcome.out
    assert "def (input_size: int, hidden_size: int, num_layers: int =, bias: bool =" in outcome.out
    assert 'Module has no attribute "fitt"' in outcome.out


def test_functions_and_subpackages_have_different_names(tmp_path: Path) -> None:
    import gyral.runs.records
    import gyral.train

    assert gyral.runs.run_record.RunRecord
    assert gyral.train.main
    assert len(gyral.list_runs(tmp_path)) == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'gyral' has no attribute 'RUMM'$"):
        _ = gyral.RUMM
    with pytest.raises(ImportError, match="cannot import name 'RUMM'"):
        exec("from gyral import RUMM")


def test_layers_and_cells_import_neither_hydra_nor_lightning() -> None:
    loaded = f"[name for name in {HEAVY!r} if name in sys.modules]"
    run = "import sys; from torch import zeros; RUM(3, 4)(zeros(2, 1, 3))"
    code = f"from gyral import {', '.join(LIBRARY)}; {run}; print({loaded})"
    outcome = spawn("-c", code)
    assert (outcome.status, outcome.out.strip()) == (0, "[]"), outcome.err
    assert "hydra" in sys.modules, "the names of the modules are not those that are imported"


def test_layers_need_torch_numpy_and_filelock_alone() -> None:
    code = f"""
import sys
import torch, numpy, filelock
before = set(sys.modules)
import gyral
for name in {LIBRARY}:
    getattr(gyral, name)
gyral.RUM(3, 4)(torch.zeros(2, 1, 3)).__len__()
others = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(others - {{"gyral", *sys.stdlib_module_names, "torch", "triton"}}))
"""
    outcome = spawn("-c", code)
    assert (outcome.status, outcome.out.strip()) == (0, "[]"), outcome.err


def test_tables_and_configurations_need_no_torch(tmp_path: Path) -> None:
    used = f"gyral.list_runs({str(tmp_path)!r}); gyral.compose(['model=gru'])"
    code = f"import sys, gyral; {used}; print('torch' in sys.modules)"
    outcome = spawn("-c", code)
    assert (outcome.status, outcome.out.strip()) == (0, "False"), outcome.err
