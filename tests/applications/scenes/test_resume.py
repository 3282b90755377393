"""A killed run resumes with its lesson."""

import shutil
from pathlib import Path

import pytest

from tests.helpers import killing
from tests.helpers.running import SMALL_RECALL, assert_same_run, invoke, load_last

# Without sequences; a new lesson begins at each validation, and the baseline of REINFORCE is part of the checkpoint.
SCENES = (
    *(item for item in SMALL_RECALL if not item.startswith(("model.", "task"))),
    *("task=scenes", "task.train_scenes=20", "task.val_scenes=10", "task.test_scenes=4", "task.questions=5"),
    *("task.batch_size=4", "task.batch_questions=3", "task.threshold=0.001", "task.lessons=[[6,4],[6,5],[6,6],[6,8]]"),
    *("model=concept_learner", "model.encoder.hidden_size=8", "model.decoder.hidden_size=8", "optimizer=adam"),
)


def test_a_run_killed_between_lessons_resumes_with_its_lesson_and_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as context:
        killing.arm("before_step", 11, act=lambda: shutil.copytree(whole, killed), patch=context.setattr)
        assert invoke(*SCENES, f"hydra.run.dir={whole}").status == 0
    before, after = load_last(killed), load_last(whole)
    assert 0 < before["curriculum"]["level"] < after["curriculum"]["level"]
    assert before["state_dict"]["model.reward_baseline"] != after["state_dict"]["model.reward_baseline"]
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)
