"""Runs end at a threshold or without improvement, also when they are killed and resumed."""

import csv
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.training.callbacks.early_stopping import EarlyStopping
from tests.helpers.moments import copy_at, train_and_copy
from tests.helpers.recorder import Recorder
from tests.helpers.running import (
    SMALL_RECALL,
    assert_same_run,
    invoke,
    load_last,
)


def started(callback: EarlyStopping, task: Any) -> tuple[EarlyStopping, Recorder]:
    """Return a callback after the start of training, and its trainer."""
    trainer = Recorder(task)
    callback.setup(trainer, task, "fit")
    return callback, trainer


@pytest.mark.parametrize(
    ("mode", "at", "score", "solved"),
    [
        ("max", 0.5, 0.5, True),
        ("max", 0.5, 0.4, False),
        ("min", 0.5, 0.4, True),
        ("min", 0.5, 0.6, False),
        ("max", 0.5, float("nan"), False),
        ("min", 0.5, float("nan"), False),
        ("max", 0.999, 0.999, True),  # in single precision 0.999 is larger, 0.1 as well, 0.7 is smaller
        ("min", 0.7, 0.7, True),
        ("max", 0.9, 0.9, True),  # in single precision 0.9 is smaller
        ("min", 0.1, 0.1, True),
        ("max", None, 1.0, False),
    ],
)
def test_a_run_is_solved_by_the_tasks_metric_and_mode(
    task: Any, mode: str, at: float | None, score: float, solved: bool
) -> None:
    task.mode = mode
    callback, trainer = started(EarlyStopping(stopping_threshold=at), task)
    trainer.callback_metrics[task.monitor] = torch.tensor(score)
    callback.on_validation_end(trainer, task)
    assert trainer.should_stop is callback.stopped is solved


def test_a_validation_outside_of_training_ends_nothing(task: Any) -> None:
    callback, trainer = started(EarlyStopping(stopping_threshold=0.0), task)
    trainer.callback_metrics[task.monitor] = torch.tensor(0.5)
    trainer.state.fn = "validate"
    callback.on_validation_end(trainer, task)
    assert not callback.stopped
    trainer.state.fn = "fit"
    callback.on_validation_end(trainer, task)
    assert callback.stopped


@pytest.mark.parametrize("at", ["much", float("inf"), True])
def test_the_threshold_is_a_number(at: Any) -> None:
    with pytest.raises(OptionError, match=f"stopping_threshold={at}: must be a finite number"):
        EarlyStopping(stopping_threshold=at)


# validated after every 8 of 24 steps
SOLVED = (
    *SMALL_RECALL,
    "model=rum",
    "model.cell.zoneout=0.2",
    "optimizer=adam",
    "optimizer.lr=0.02",
    "task.monitor=val/loss",
    "task.mode=min",
    "callbacks.checkpoints.every=4",
)


# what a kill leaves: solved, but not in a checkpoint yet; solved, the checkpoint is the validation's own
MOMENTS = [("before_step", 10), ("before_replace", 16), ("after_replace", 16), ("in_test", 16)]


def check_resumed(whole: Path, point: str, step: int, tmp_path: Path) -> None:
    """Check that the copy of a moment ends as the run that nothing happened to."""
    killed = Path(shutil.copytree(copy_at(whole, point, step), tmp_path / "killed"))
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert json.loads((killed / "DONE").read_text())["steps"] == 16
    assert_same_run(whole, killed)


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is solved at the second of its three validations."""
    directory = tmp_path_factory.mktemp("runs")
    assert invoke(*SOLVED, f"hydra.run.dir={directory / 'whole'}").status == 0
    with (directory / "whole" / "metrics.csv").open(newline="") as file:
        first, second, third = [float(row["val/loss"]) for row in csv.DictReader(file) if row["val/loss"]]
    assert first > second > third
    threshold = f"callbacks.early_stopping.stopping_threshold={second + 1e-4 * (first - second)}"
    outcome = train_and_copy(directory / "solved", MOMENTS, *SOLVED, threshold)
    assert "Stopped early after step 16: val/loss is " in outcome.err
    return directory / "solved"


def test_a_solved_run_ends_tested_and_done(solved: Path) -> None:
    directory = solved
    results = json.loads((directory / "DONE").read_text())
    assert results["steps"] == load_last(directory)["global_step"] == 16
    assert "test/accuracy" in results
    assert torch.load(directory / "checkpoints" / "best.ckpt", weights_only=True)["global_step"] == 16
    with (directory / "metrics.csv").open(newline="") as file:
        assert max(int(row["step"]) for row in csv.DictReader(file)) == 16, "a row of the test and none after it"


@pytest.mark.named("before_replace-*")  # a stalled run is killed at the other moment
@pytest.mark.parametrize(("point", "step"), MOMENTS)
def test_a_killed_run_is_solved_at_the_same_step(solved: Path, tmp_path: Path, point: str, step: int) -> None:
    check_resumed(solved, point, step, tmp_path)


@pytest.mark.parametrize(
    ("mode", "scores", "stopped_at"),
    [
        ("max", [0.1, 0.3, 0.2, 0.3], 3),  # as good as the best is not better
        ("max", [0.1, 0.3, 0.2, 0.4, 0.3, 0.2], 5),
        ("min", [0.3, 0.2, 0.3, 0.1, 0.0], None),
        ("max", [math.nan, 0.1, math.nan, math.nan], 3),
        ("min", [math.nan, math.nan, 0.1], 1),
    ],
)
def test_a_run_stops_when_the_metric_stops_improving(
    task: Any, mode: str, scores: list[float], stopped_at: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    task.mode = mode
    callback, trainer = started(EarlyStopping(patience=2), task)
    for index, score in enumerate(scores):
        trainer.callback_metrics[task.monitor] = torch.tensor(score)
        # the state goes through a checkpoint between two validations
        state = callback.state_dict()
        callback, _ = started(EarlyStopping(patience=2), task)
        callback.load_state_dict(state)
        callback.on_validation_end(trainer, task)
        assert trainer.should_stop is callback.stopped is (index == stopped_at)
        if trainer.should_stop:
            break
    resumed = Recorder(task)
    callback.on_train_start(resumed, task)
    assert resumed.should_stop is (stopped_at is not None)


def test_no_patience_ends_no_run_and_neither_does_an_evaluation(task: Any) -> None:
    for options, fn in (({}, "fit"), ({"patience": 1}, "validate")):
        callback, trainer = started(EarlyStopping(**options), task)
        trainer.callback_metrics[task.monitor] = torch.tensor(0.5)
        trainer.state.fn = fn
        for _ in range(3):
            callback.on_validation_end(trainer, task)
        assert not callback.stopped
    with pytest.raises(OptionError, match=r"^patience=0: must be an integer"):
        EarlyStopping(patience=0)


# nothing is learned, so that the second of three validations is not better than the first
STALLED = (
    *(*SMALL_RECALL, "model=gru", "optimizer.lr=1e-9", "callbacks=early_stopping"),
    *("callbacks.early_stopping.patience=1", "callbacks.checkpoints.every=4"),
)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "stalled"
    said = "Stopped early after step 16: val/accuracy has not improved in 1 validations (best: "
    assert said in train_and_copy(directory, MOMENTS, *STALLED).err
    assert json.loads((directory / "DONE").read_text())["steps"] == load_last(directory)["global_step"] == 16
    return directory


@pytest.mark.named("after_replace-*")
@pytest.mark.parametrize(("point", "step"), MOMENTS)
def test_a_killed_run_stops_early_at_the_same_step(stalled: Path, tmp_path: Path, point: str, step: int) -> None:
    check_resumed(stalled, point, step, tmp_path)
