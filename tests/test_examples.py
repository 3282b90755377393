"""The notebooks and scripts of examples/ run from top to bottom, with fewer steps than they show."""

import re
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient

from tests.faults import forks
from tests.helpers.running import ROOT, Outcome, spawn

FRAMEWORKS = ("hydra", "omegaconf", "pytorch_lightning", "lightning", "lightning_fabric", "wandb")
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


LOOP = ROOT / "examples" / "own_training_loop.py"
RUN_LOOP = f"""
import sys, runpy
runpy.run_path({str(LOOP)!r}, run_name="__main__")
print([name for name in {FRAMEWORKS} if name in sys.modules])
"""


def accuracies(ended: forks.Ended | Outcome) -> list[float]:
    """Return the accuracies that the script has printed; it imports neither Hydra nor Lightning."""
    assert ended.status == 0, ended.err
    *lines, imported = ended.out.splitlines()
    assert imported == "[]"
    return [float(re.search(r"([\d.]+) % of the answers right", line)[1]) for line in lines]  # type: ignore[index]


def test_training_loop_without_a_framework_runs(tmp_path: Path) -> None:
    packages = ("gyral", "hydra_plugins", *FRAMEWORKS)
    ended = forks.import_anew(RUN_LOOP, "--steps", "5", packages=packages, directory=tmp_path)
    assert len(accuracies(ended)) == 5


@pytest.mark.slow
def test_training_loop_learns_and_needs_starts() -> None:
    assert accuracies(spawn("-c", RUN_LOOP))[-1] > 97
    assert accuracies(spawn("-c", RUN_LOOP, "--ignore-starts"))[-1] < 75
