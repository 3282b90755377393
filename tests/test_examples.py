"""The notebooks of examples/ run from top to bottom, with fewer steps than they show."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.helpers.running import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    notebook = nbformat.read(path, as_version=4)
    settings = next(cell for cell in notebook.cells if cell.cell_type == "code")
    settings.source, changed = re.subn(r"STEPS = \d+", "STEPS = 4", settings.source)
    settings.source = settings.source.replace('SEEDS = "1,2"', 'SEEDS = "1"')
    assert changed == 1
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()


def test_there_are_three_notebooks_with_their_outputs() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        pictures = [out for cell in cells for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]
        assert pictures, f"{path.name} shows no figure"
