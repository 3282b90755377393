"""The progress of training: the line in a terminal, and a message per validation elsewhere."""

import contextlib
import csv
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gyral.core import progress
from gyral.core.errors import OptionError
from gyral.tasks.steps import Steps
from gyral.training.callbacks.progress_bar import ProgressBar
from tests.helpers.running import SMALL_RECALL, invoke

WITH_BAR = (*(word for word in SMALL_RECALL if word != "~callbacks.progress_bar"), "model=gru", "trainer.max_steps=4")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def updated_steps(monkeypatch: pytest.MonkeyPatch, step_seconds: float, **options: Any) -> list[int]:
    """Return after which of ten steps of so many seconds the line is updated."""
    clock = iter(100 + step_seconds * step for step in range(10))
    monkeypatch.setattr("gyral.training.callbacks.progress_bar.time.monotonic", lambda: next(clock))
    updated: list[int] = []
    monkeypatch.setattr(progress.line, "update", lambda step, *_: updated.append(step))
    bar = ProgressBar(**options)
    task: Any = SimpleNamespace(recent_loss=lambda: None)
    for step in range(1, 11):
        bar.on_train_batch_end(trainer_at(step), task, None, None, step - 1)
    return updated


def trainer_at(step: int) -> Any:
    """Return a stand-in for a trainer after a step of ten; every four steps, it validates on two batches."""
    options = {"val_check_batch": 4, "accumulate_grad_batches": 1, "num_val_batches": [2]}
    state = SimpleNamespace(fn="fit")
    return SimpleNamespace(global_step=step, max_steps=10, callback_metrics={}, state=state, **options)


def test_the_line_is_updated_by_the_clock_and_at_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert updated_steps(monkeypatch, 0.125) == [1, 5, 9, 10]
    assert updated_steps(monkeypatch, 0.125, seconds=0.25) == [1, 3, 5, 7, 9, 10]
    assert updated_steps(monkeypatch, 20.0) == list(range(1, 11))


def test_the_time_left_has_the_validations_and_the_final_test(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, left, task = [100.0], dict[int, float | None](), SimpleNamespace(recent_loss=lambda: 0.5)
    task.data = SimpleNamespace(loader={"test": range(5)}.get)
    caplog.set_level("INFO")
    monkeypatch.setattr("gyral.training.callbacks.progress_bar.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(progress.line, "update", lambda step, total, values="", time=None: left.update({step: time}))
    bar: Any = ProgressBar(seconds=0)
    bar.on_train_start(trainer_at(0), task)
    for step in range(1, 11):
        clock[0] += 3  # seconds of a step
        bar.on_train_batch_end(trainer_at(step), task, None, None, step - 1)
        if step in (4, 8, 10):
            bar.on_validation_start(trainer_at(step), task)
            clock[0] += 20  # seconds of a validation, 10 for each batch
            bar.on_validation_end(trainer_at(step), task)
    # steps, then batches of validations and of the test; before the first validation, a batch takes a third of a step
    assert left[1] == 9 * 3 + (3 * 2 + 5) * 1
    assert left[5] == 5 * 3 + (2 * 2 + 5) * 10
    assert left[7] == 3 * 3 + (2 * 2 + 5) * 10
    assert left[9] == 1 * 3 + (1 * 2 + 5) * 10
    ends = [line.partition("train loss 0.5")[2] for line in caplog.messages]
    assert ends == [", 1:48 left", ", 1:16 left", ""]


@pytest.mark.parametrize("seconds", [-1, "x"])
def test_the_update_interval_is_checked(seconds: Any) -> None:
    with pytest.raises(OptionError, match="seconds"):
        ProgressBar(seconds)


def test_outside_a_terminal_each_validation_is_one_line(tmp_path: Path) -> None:
    outcome = invoke(*WITH_BAR, "trainer.val_check_interval=2", f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    with (tmp_path / "metrics.csv").open(newline="") as file:
        loss = [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]][-1]
    lines = [line for line in outcome.err.splitlines() if line.startswith("step")]
    assert re.fullmatch(r"step 2 of 4: train loss .*, val loss .*, val accuracy \d+\.\d %, 0:\d\d left", lines[0])
    assert lines[1].startswith(f"step 4 of 4: train loss {loss:.4g}, ")
    assert not lines[1].endswith("left")
    assert lines[1] in (tmp_path / "train.log").read_text()
    assert not {"\r", "\x1b"} & set(outcome.err + outcome.out)
    assert re.search(r"^[\d,]+ parameters on cpu; \d+ train, \d+ val, \d+ test sequences$", outcome.err, re.MULTILINE)
    assert "GRUCell runs on" not in outcome.err
    assert "GRUCell runs on the " in (tmp_path / "train.log").read_text()


def test_the_training_loss_of_the_line_is_that_of_the_steps_since_the_last_logged_one() -> None:
    task: Any = SimpleNamespace(_losses=[torch.tensor(1.0), torch.tensor(3.0)], train_loss=9.0)
    assert Steps.recent_loss(task) == 2
    task._losses.clear()
    assert Steps.recent_loss(task) == 9


def test_a_terminal_shows_one_line_that_disappears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.redirect_stderr(Terminal()) as screen:
        handler = progress.ConsoleHandler()
        with progress.line.show("loading"):
            progress.line.begin("training", 3000)
            progress.line.update(1234, 3000, "train loss 0.1234, val accuracy 12.3 %")
            with progress.line.describe("compiling"):
                progress.line._progress.refresh()
            record: Any = {"msg": "a message " * 12 + "with a long line", "levelname": "INFO"}
            handler.emit(progress.logging.makeLogRecord(record))
            handler.emit(progress.logging.makeLogRecord({"msg": "is on the line already", **progress.PROGRESS}))
        assert not progress.line.is_shown
        assert sys.stderr is screen
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "1,234/3,000 train loss 0.1234, val accuracy 12.3 %" in shown
    assert "compiling" in shown
    assert "a message " * 12 + "with a long line\n" in shown
    assert "already" not in shown
    assert screen.getvalue().rstrip("\n").endswith("\x1b[2K")  # the line is erased


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (65.4, "1:05"), (7265, "2:01:05")])
def test_durations(seconds: float, text: str) -> None:
    assert progress.format_seconds(seconds) == text
