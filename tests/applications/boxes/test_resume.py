"""A killed run resumes with its threshold."""

import shutil
from pathlib import Path

import pytest

from tests.helpers import killing
from tests.helpers.running import SMALL_RECALL, assert_same_run, invoke, load_last

# Without sequences; the threshold of the predictions is part of the checkpoint.
HYPERNYMS = (
    *(item for item in SMALL_RECALL if not item.startswith(("model.", "task"))),
    *("task=hypernyms", "task.batch_size=16", "task.negatives=2", "model=smoothed_box", "model.dimension=2"),
    *("callbacks=boxes", "optimizer=adam", "optimizer.lr=0.01"),
)


def test_a_killed_run_without_sequences_resumes_with_its_threshold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as context:
        killing.arm("before_step", 11, act=lambda: shutil.copytree(whole, killed), patch=context.setattr)
        assert invoke(*HYPERNYMS, f"hydra.run.dir={whole}").status == 0
    assert load_last(killed)["state_dict"]["metrics.threshold"] != load_last(whole)["state_dict"]["metrics.threshold"]
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)
    assert (whole / "boxes.csv").read_text() == (killed / "boxes.csv").read_text()
