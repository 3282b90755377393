"""How long the parts of a run take, measured on a few of its steps."""

import itertools
import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.core.pace import count_validations
from gyral.training import build, pace
from gyral.training.pace import STEPS, measure_pace
from tests.helpers.running import SMALL_RECALL, compose_config

WORDS = (*SMALL_RECALL, "model=gru", "trainer.max_steps=1000", "trainer.val_check_interval=300", "logger=none")


def test_a_pace_counts_all_steps_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = compose_config(*WORDS, "task.batch_size=4", "task.val_size=8", "task.test_size=80", "threads=1")
    data: Any = build.build_task(config).data
    validation, test = (len(data.loader(split)) for split in ("val", "test"))
    monkeypatch.chdir(tmp_path)
    seconds = itertools.count()
    monkeypatch.setattr(pace, "now", lambda task: next(seconds))
    threads = torch.get_num_threads()
    started = time.monotonic()
    found = measure_pace(config, STEPS + 5.0)
    passed = time.monotonic() - started
    assert found is not None
    assert found.steps == STEPS
    assert 0 < found.spent < passed
    # a second for each step and batch, and the start
    assert 0 < found.seconds - (1000 + 4 * validation + test) < passed, (
        "a second for each step and batch, and the start"
    )
    assert torch.get_num_threads() == threads
    assert not list(tmp_path.iterdir())
    assert "".join(capfd.readouterr()) == ""
    assert logging.root.manager.disable == logging.NOTSET


def test_slow_steps_are_measured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure_pace(compose_config(*WORDS), 0.0)
    assert found is not None
    assert found.steps == 2


def test_a_run_of_several_processes_is_not_measured() -> None:
    assert measure_pace(compose_config(*WORDS, "trainer=ddp"), 1.0) is None


@pytest.mark.parametrize(
    ("step", "steps", "interval", "count"),
    [
        (0, 10, 4, 3),
        (4, 10, 4, 2),
        (7, 10, 4, 2),
        (8, 10, 4, 1),
        (10, 10, 4, 0),
        (0, 8, 4, 2),
        (7, 8, 4, 1),
        (0, 3, 9, 1),
    ],
)
def test_the_last_validation_is_at_the_end(step: int, steps: int, interval: int, count: int) -> None:
    assert count_validations(step, steps, interval) == count
