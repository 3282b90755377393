"""The notebooks and scripts of examples/ run from top to bottom, with fewer steps than they show."""

import re
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers.running import ROOT, spawn

FRAMEWORKS = ("hydra", "omegaconf", "pytorch_lightning", "lightning_fabric", "wandb")
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
IN_PROCESS = "new_cell"


def shortened(path: Path) -> nbformat.NotebookNode:
    """Return a notebook with a few steps and one seed."""
    notebook = nbformat.read(path, as_version=4)
    settings = next(cell for cell in notebook.cells if cell.cell_type == "code")
    settings.source, changed = re.subn(r"STEPS = \d+", "STEPS = 4", settings.source)
    settings.source = settings.source.replace("SEEDS = (1, 2)", "SEEDS = (1,)")
    assert changed == 1
    return notebook


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    NotebookClient(shortened(path), timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_the_cells_of_a_notebook_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, without the seconds in which a kernel imports everything."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    namespace: dict[str, object] = {"__name__": "__main__"}
    for cell in shortened(ROOT / "examples" / f"{IN_PROCESS}.ipynb").cells:
        magic, _, text = cell.source.partition("\n")
        if magic.startswith("%%writefile "):
            Path(magic.split()[1]).write_text(text, encoding="utf-8")
        elif cell.cell_type == "code":
            exec(compile(cell.source, IN_PROCESS, "exec"), namespace)
    assert [*namespace["runs"].row.unique()] == ["GRU", "MGU"]  # type: ignore[attr-defined]
    plt.close("all")
    del sys.modules["mgu"]


def test_notebooks_have_their_outputs() -> None:
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        outputs = [out for cell in cells for out in cell.get("outputs", [])]
        assert any("image/png" in out.get("data", {}) for out in outputs), f"{path.name} shows no figure"
        assert not any(out.get("name") == "stderr" for out in outputs), f"{path.name} shows warnings"


def run_training_loop(*arguments: str) -> list[float]:
    """Run the script, which imports neither Hydra nor Lightning, and return the accuracies that it prints."""
    path = ROOT / "examples" / "own_training_loop.py"
    run = f"import sys, runpy; sys.argv = {[str(path), *arguments]}; runpy.run_path(sys.argv[0], run_name='__main__')"
    outcome = spawn("-c", f"{run}; print([name for name in {FRAMEWORKS} if name in sys.modules])")
    assert outcome.status == 0, outcome.err
    *lines, imported = outcome.out.splitlines()
    assert imported == "[]"
    return [float(re.search(r"([\d.]+) % of the answers right", line)[1]) for line in lines]  # type: ignore[index]


def test_training_loop_without_a_framework_runs() -> None:
    assert len(run_training_loop("--steps", "5")) == 5


@pytest.mark.slow
def test_training_loop_learns_and_needs_starts() -> None:
    assert run_training_loop()[-1] > 97
    assert run_training_loop("--ignore-starts")[-1] < 75
