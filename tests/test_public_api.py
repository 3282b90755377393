"""The names of `gyral`: complete, lazy, and without Hydra and Lightning until they are needed."""

import ast
import inspect
import re
import shutil
import sys
from pathlib import Path

import pytest

import gyral
from gyral.nn import layers, stubs
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
    """With the stubs alone and one module of source text: torch takes 20 s."""
    for path, text in stubs.stubs().items():
        (tmp_path / "gyral" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "gyral" / path).write_text(text, encoding="utf-8")
    for package in ("nn", "reports"):
        (tmp_path / "gyral" / package).mkdir(exist_ok=True)
        (tmp_path / "gyral" / package / "__init__.py").touch()
    shutil.copy(SOURCE / "reports" / "frame.py", tmp_path / "gyral" / "reports")
    (tmp_path / "user.py").write_text(
        """
import gyral
from gyral import RUM
from gyral.nn.layers import GRU
reveal_type(gyral.list_runs)
reveal_type(RUM)
gyral.fitt
gyral.RUM(1, 2, lambda_=1)
gyral.FSRNN(1, 2)
GRU(1, 2, 1, True, zoneout="0.1")
gyral.RUM(1, 2, lambd=1.0, backend="fused", dropout=0.1)
"""
    )
    sources = sorted((tmp_path / "gyral").rglob("*.py*"))
    read = [
        "--follow-imports=skip",
        "--namespace-packages",
        "--explicit-package-bases",
        f"--cache-dir={tmp_path}/cache",
    ]
    outcome = spawn("-m", "mypy", *read, tmp_path / "user.py", *sources, cwd=tmp_path)
    assert "options: typing.Sequence[str] =" in outcome.out
    assert "def (input_size: int, hidden_size: int, num_layers: int =, bias: bool =" in outcome.out
    errors = re.findall(r"^user\.py:(\d+): error: (.*?)  \[", outcome.out, re.MULTILINE)
    assert errors == [
        ("7", 'Module has no attribute "fitt"'),
        ("8", 'Unexpected keyword argument "lambda_" for "RUM"; did you mean "lambd"?'),
        ("9", 'Missing named argument "fast" for "FSRNN"'),
        ("9", 'Missing named argument "slow" for "FSRNN"'),
        ("10", 'Argument "zoneout" to "GRU" has incompatible type "str"; expected "float"'),
    ]


def test_the_stubs_have_the_signatures_and_docstrings_of_the_layers() -> None:
    nodes = {node.name: node for node in ast.parse(stubs.layers()).body if isinstance(node, ast.ClassDef)}
    assert ["Layer", *nodes] == at_least(45, layers.__all__)
    for name, node in nodes.items():
        layer, defined = getattr(layers, name), {}
        exec(f"from __future__ import annotations\n{ast.unparse(node.body[-1])}", defined)
        told, true = (inspect.signature(one).parameters.values() for one in (defined["__init__"], layer.__init__))
        assert [(p.name, p.kind, p.default) for p in told] == [(p.name, p.kind, p.default) for p in true]
        assert all(p.annotation is not p.empty for p in told if p.name != "self")
        assert [ast.unparse(base) for base in node.bases] == [base.__name__ for base in layer.__bases__]
        assert ast.get_docstring(node) == inspect.getdoc(layer.cell_class)


def test_the_stubs_are_made_without_a_package_that_is_installed() -> None:
    """As setup.py makes them, where setuptools alone is installed."""
    code = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); from gyral.nn import stubs; print(stubs.stubs())"
    outcome = spawn("-I", "-S", "-c", code)
    assert outcome.out == f"{stubs.stubs()}\n", outcome.err


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
