"""A killed run resumes with its lesson."""

import shutil
from pathlib import Path

from tests.helpers.moments import copy_at
from tests.helpers.running import assert_same_run, invoke, load_last


def test_a_run_killed_between_lessons_resumes_with_its_lesson_and_baseline(scenes_run: Path, tmp_path: Path) -> None:
    whole, killed = scenes_run, tmp_path / "killed"
    shutil.copytree(copy_at(whole, "before_step", 4), killed)
    before, after = load_last(killed), load_last(whole)
    assert 0 < before["curriculum"]["level"] < after["curriculum"]["level"]
    assert before["state_dict"]["model.reward_baseline"] != after["state_dict"]["model.reward_baseline"]
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)
