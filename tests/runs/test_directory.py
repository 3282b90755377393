"""Run directories: created only for valid configurations, with the provenance of the start that wrote them."""

import json
from pathlib import Path

import pytest

from gyral.config.roles import add_defaults
from gyral.core.errors import UserError
from gyral.runs.directory import read_saved_run
from tests.helpers.running import SMALL_COPY, invoke


def test_a_wrong_option_leaves_no_run_directory(tmp_path: Path) -> None:
    run = tmp_path / "run"
    wrong = ("model=rum", "model.backend=fused", "model.cell.recurrent_dropout=0.5")
    assert invoke(*SMALL_COPY, *wrong, f"hydra.run.dir={run}").status == 1
    assert list(tmp_path.iterdir()) == []


def test_a_start_without_a_checkpoint_leaves_no_false_provenance(tmp_path: Path) -> None:
    where = f"hydra.run.dir={tmp_path}"
    assert "NonFiniteError" in invoke(*SMALL_COPY, "model=rum", "optimizer.lr=1e30", where).error
    assert "NonFiniteError" in (tmp_path / "FAILED").read_text()
    (tmp_path / "git.diff").write_text(str(tmp_path))
    first = json.loads((tmp_path / "provenance.json").read_text())

    short = ("trainer.max_steps=2", "trainer.val_check_interval=2")
    assert invoke(*SMALL_COPY, "model=gru", *short, where).status == 0
    assert not (tmp_path / "FAILED").exists()
    second = json.loads((tmp_path / "provenance.json").read_text())
    assert "model=gru" in second["command"]
    assert "model=gru" in (tmp_path / "overrides.yaml").read_text()
    assert second["id"] == first["id"]
    diff = tmp_path / "git.diff"
    assert not diff.exists() or str(tmp_path) not in diff.read_text()


def test_a_damaged_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("seed: 1\ntask: {}\n")
    with pytest.raises(UserError, match=r"/config\.yaml: has no section model"):
        read_saved_run(tmp_path)


def test_an_option_that_a_class_has_gained_has_its_default() -> None:
    target = {"_target_": "gyral.tasks.repeat_copy.RepeatCopyTask"}
    wanted = {**target, "test_repeats": []}  # the default is a tuple, which is saved as a list
    assert add_defaults(target, wanted) == wanted
    assert add_defaults(target, {**target, "test_repeats": [3]}) == target
