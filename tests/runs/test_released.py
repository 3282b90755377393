"""A run directory of a released version stays readable: it resumes, evaluates and reports."""

import json
import shutil
from pathlib import Path

import pytest

from gyral.runs.directory import read_results
from tests.helpers.running import ROOT, invoke

RELEASED = ROOT / "tests" / "runs" / "released"
# As version 0.2.0 measured them. Processors round differently, but not in the fourth digit after four steps.
LOSS_AFTER_TWO_STEPS, LOSS_AFTER_FOUR_STEPS = 1.293165, 1.279714


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(RELEASED, tmp_path / "run")


def test_it_resumes(run: Path) -> None:
    outcome = invoke(f"resume={run}")
    assert outcome.status == 0, outcome.err
    results = read_results(run)
    assert results["steps"] == 4
    assert results["test/loss"] == pytest.approx(LOSS_AFTER_FOUR_STEPS, rel=1e-4)


def test_it_is_evaluated(run: Path) -> None:
    outcome = invoke(f"run={run}", "checkpoint=last", "split=val", f"save={run}/a.json", entry="evaluate")
    assert outcome.status == 0, outcome.err
    loss = json.loads((run / "a.json").read_text())["numbers"]["val/loss"]
    assert loss == pytest.approx(LOSS_AFTER_TWO_STEPS, rel=1e-4)


def test_it_is_reported(run: Path) -> None:
    outcome = invoke(f"sweep={run}", entry="report")
    assert outcome.status == 0, outcome.err
    assert "unfinished at step 2" in outcome.out
