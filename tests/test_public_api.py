"""The names of `gyral`: complete, lazy, and without Hydra and Lightning until they are needed."""

import sys
from pathlib import Path

import pytest

import gyral
from gyral.nn import layers
from tests.faults import forks
from tests.helpers.found import at_least
from tests.helpers.running import spawn

SOURCE = Path(gyral.__file__).parent
LIBRARY = [name for name in gyral.__all__ if not name.islower()]
# what torch imports, and what cannot be imported twice
OF_TORCH = ("torch", "torchgen", "functorch", "triton", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2")


def test_every_public_name_can_be_imported_and_called() -> None:
    for name in at_least(93, gyral.__all__):
        found = getattr(gyral, name)
        assert found.__name__ == name
        assert callable(found), name
        assert name in dir(gyral)


def test_every_layer_and_its_cell_are_public() -> None:
    for name in at_least(40, set(layers.__all__) - {"Layer"}):
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


def imported_anew(code: str, kept: tuple[str, ...], directory: Path) -> str:
    """Return what code prints that imports all packages anew but those of Python and the kept ones."""
    others = {name.partition(".")[0] for name in sys.modules} - {*kept, *sys.stdlib_module_names, "__main__"}
    ended = forks.import_anew(code, packages=others, directory=directory)
    assert ended.status == 0, ended.err
    return ended.out.strip()


def test_layers_and_cells_import_neither_hydra_nor_lightning_but_torch_numpy_and_filelock_alone(tmp_path: Path) -> None:
    code = f"""
import sys
before = set(sys.modules)
import gyral, torch
for name in {at_least(85, LIBRARY)}:
    getattr(gyral, name)
gyral.RUM(3, 4)(torch.zeros(2, 1, 3)).__len__()
others = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(sorted(others - {{*sys.stdlib_module_names, "torch", "triton"}}))
"""
    assert {"hydra", "pytorch_lightning"} <= {*sys.modules}, "the names of the modules are not those that are imported"
    assert imported_anew(code, (*OF_TORCH, "numpy", "filelock"), tmp_path) == "['gyral']"


def test_tables_and_configurations_need_no_torch(tmp_path: Path) -> None:
    used = f"gyral.list_runs({str(tmp_path)!r}); gyral.compose(['model=gru'])"
    shown = "print('torch' in sys.modules, 'hydra' in before)"
    code = f"import sys; before = set(sys.modules); import gyral; {used}; {shown}"
    assert imported_anew(code, ("numpy", "pandas", "pydantic_core"), tmp_path) == "False False"
