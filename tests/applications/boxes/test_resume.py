"""A killed run resumes with its threshold, which is part of the checkpoint."""

import shutil
from pathlib import Path

from gyral.runs.directory import Run
from tests.helpers.moments import copy_at
from tests.helpers.running import assert_same_run, invoke, load_last


def test_a_killed_run_without_sequences_resumes_with_its_threshold(felines: Run, tmp_path: Path) -> None:
    whole, killed = felines.directory, tmp_path / "killed"
    shutil.copytree(copy_at(whole, "before_step", 11), killed)
    assert load_last(killed)["state_dict"]["metrics.threshold"] != load_last(whole)["state_dict"]["metrics.threshold"]
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)
    assert (whole / "boxes.csv").read_text() == (killed / "boxes.csv").read_text()
