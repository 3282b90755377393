"""When a run validates: about 20 times, and at its end."""

import shutil
from pathlib import Path

import pytest

from gyral.config.tables import files, load_table
from tests.helpers import killing
from tests.helpers.found import at_least
from tests.helpers.running import (
    SMALL_RECALL,
    assert_same_run,
    compose_config,
    invoke,
    load_last,
    read_rows,
)

RUN = (*SMALL_RECALL, "model=gru", "trainer.max_steps=10")  # validates after 8 steps


@pytest.mark.parametrize(("steps", "interval"), [(4000, 200), (600, 30), (24, 2), (25, 2), (7, 1), (1, 1)])
def test_the_default_interval_follows_the_number_of_steps(steps: int, interval: int) -> None:
    config = compose_config(f"trainer.max_steps={steps}")
    assert config.trainer.val_check_interval == interval
    assert compose_config(f"trainer.max_steps={steps}", "trainer.val_check_interval=9").trainer.val_check_interval == 9


@pytest.mark.parametrize(
    "value", ["0", "null", *(pytest.param(word, marks=pytest.mark.slow) for word in ("many", "true"))]
)
def test_a_wrong_number_of_steps_is_named(value: str, tmp_path: Path) -> None:
    error = invoke(f"trainer.max_steps={value}", f"hydra.run.dir={tmp_path}/run").error
    assert error.startswith("trainer.max_steps=")


def test_every_trained_row_writes_its_interval_into_its_protocol() -> None:
    """Records ran with it: a row must not follow a change of the default."""
    key = "trainer.val_check_interval"
    without = []
    for file in at_least(50, files().values()):
        table = load_table(file)
        for name in table.axes["experiment"]:
            row = name.removeprefix(f"{table.experiment}/")
            columns = [*table.columns.values()] or [{}]
            without += [name for column in columns if key not in table.options(row) | column]
    assert not without


def validated(directory: Path) -> list[str]:
    """Return the indices of the steps after which a run has validated."""
    return [row["step"] for row in read_rows(directory) if row["val/loss"]]


def test_training_ends_with_a_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as context:
        killing.arm("in_validation", 10, act=lambda: shutil.copytree(whole, killed), patch=context.setattr)
        assert invoke(*RUN, f"hydra.run.dir={whole}", "callbacks.checkpoints.every=5").status == 0
    assert validated(whole) == ["7", "9"]
    # the checkpoint of the last step is written once, after the validation
    assert load_last(killed)["global_step"] == 5
    assert load_last(whole)["callbacks"]["Checkpoints"]["best_score"] is not None
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)
    assert validated(killed) == ["7", "9"]


def test_a_run_without_validations_has_none_at_its_end(tmp_path: Path) -> None:
    outcome = invoke(*RUN, f"hydra.run.dir={tmp_path}", "+trainer.limit_val_batches=0", "trainer.max_steps=4")
    assert outcome.status == 0, outcome.err
    assert "val/loss" not in read_rows(tmp_path)[-1] or validated(tmp_path) == []
