"""What a run of a core task imports, and that no files import each other in a circle."""

import ast
import json
import sys
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.faults import forks
from tests.helpers.found import at_least
from tests.helpers.running import SMALL_COPY

ROOT = Path(__file__).parents[1]
SOURCES = [ROOT / "src" / "gyral", ROOT / "src" / "hydra_plugins", ROOT / "benchmarks"]
PACKAGES = ("src", "gyral", "hydra", "hydra_plugins", "omegaconf")  # imported anew
FEWEST_MODULES, MOST_MODULES = 80, 116
MOST_CALLS = 1005 if sys.version_info < (3, 13) else 1073  # of functions of ours, from the command to the first step
SCRIPT = """
import json, sys
from gyral import train

calls = []

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and "/src/gyral/" in code.co_filename and code.co_name[0] != "<":
        calls.append(code.co_qualname)
        if code.co_name == "training_step":
            sys.setprofile(None)

sys.setprofile(note)
train.main()
print(json.dumps([len(calls), [name for name in sys.modules if name.partition('.')[0] == 'gyral']]))
"""


def test_the_copying_task_imports_few_modules_and_makes_few_calls(tmp_path: Path) -> None:
    words = ["model=rum", *(word for word in SMALL_COPY if "callbacks" not in word), "callbacks=none"]
    words += ["trainer.max_steps=2", "trainer.val_check_interval=2"]
    words.append(f"hydra.run.dir={tmp_path / 'run'}")
    outcome = forks.import_anew(SCRIPT, *words, packages=PACKAGES, directory=tmp_path)
    assert outcome.status == 0, outcome.err
    assert "baseline beaten" in outcome.out
    assert (tmp_path / "run" / "DONE").is_file()
    calls, names = json.loads(outcome.out.splitlines()[-1])
    modules = at_least(FEWEST_MODULES, names)
    assert not [name for name in modules if name.startswith("gyral.applications")]
    assert len(modules) <= MOST_MODULES
    assert len(modules) < calls <= MOST_CALLS


def imports_between_files(packages: Iterable[Path]) -> dict[str, set[str]]:
    """Return the modules of packages with those that they import: at the top, inside functions, and for types."""
    files = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for package in packages
        for path in package.rglob("*.py")
    }
    found: dict[str, set[str]] = {module: set() for module in files}
    for module, path in files.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found[module] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}:{node.lineno}: must not be relative"
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found[module] |= {name if name in files else str(node.module) for name in names}
    return {module: names & files.keys() for module, names in found.items()}


def check_circles(imports: dict[str, set[str]]) -> None:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"circle of imports: {' ← '.join(error.args[1])}")


def test_no_files_import_each_other_in_a_circle() -> None:
    imports = imports_between_files(SOURCES)
    at_least(520, imports)
    check_circles(imports)


def test_imports_for_types_and_inside_functions_count(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "one.py").write_text("def f():\n    import sys\n")
    (tmp_path / "two.py").write_text(f"if TYPE_CHECKING:\n    from {tmp_path.name} import one\n")
    check_circles(imports_between_files([tmp_path]))
    (tmp_path / "one.py").write_text(f"def f():\n    from {tmp_path.name}.two import g\n")
    with pytest.raises(pytest.fail.Exception, match=r"circle of imports: .*\.one ← .*\.two|.*\.two ← .*\.one"):
        check_circles(imports_between_files([tmp_path]))
