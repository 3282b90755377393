"""A run directory of the first release resumes, evaluates and reports."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from gyral.runs import records
from tests.helpers.running import ROOT, invoke, load_last

RELEASED = ROOT / "tests" / "released_run"
MEASURED = ("seconds_a_step", "peak_memory_mb")  # differ between runs


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a copy of the released run, as it was when it was killed at step 13 of 24."""
    directory = tmp_path / "run"
    shutil.copytree(RELEASED, directory, ignore=shutil.ignore_patterns("README.md", "expected_DONE", "*.gz"))
    (directory / "checkpoints").mkdir()
    (directory / "checkpoints/last.ckpt").write_bytes(gzip.decompress((RELEASED / "last.ckpt.gz").read_bytes()))
    return directory


def test_a_run_of_the_first_release_resumes_evaluates_and_reports(run: Path) -> None:
    outcome = invoke(f"resume={run}")
    assert outcome.status == 0, outcome.err
    assert f"Resuming from {run}/checkpoints/last.ckpt" in outcome.err
    assert load_last(run)["global_step"] == 24
    results, expected = (json.loads(path.read_text()) for path in (run / "DONE", RELEASED / "expected_DONE"))
    for name in set(expected) - {*MEASURED}:
        # close, not equal: processors round differently, and so do the kernels of different versions
        assert results[name] == pytest.approx(expected[name], abs=1e-4), name

    outcome = invoke(f"run={run}", "split=test", entry="evaluate")
    assert outcome.status == 0, outcome.err
    assert "test/loss" in outcome.out

    outcome = invoke(f"sweep={run}", entry="report")
    assert outcome.status == 0, outcome.err
    assert "RUM" in outcome.out
    [record], notes = records.read(run)
    assert notes == []
    assert (record.state, record.cell, record.task, record.provenance.host) == ("DONE", "RUM", "copy", "laptop")


def test_the_command_of_a_run_of_the_first_release_continues_it(run: Path) -> None:
    words = [word for word in json.loads((run / "provenance.json").read_text())["command"][2:] if "hydra." not in word]
    outcome = invoke(*words, f"hydra.run.dir={run}")
    assert outcome.status == 0, outcome.err
    assert f"Resuming from {run}/checkpoints/last.ckpt" in outcome.err
