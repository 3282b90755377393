"""How long the parts of a run take, measured on a few of its steps."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.core.pace import Pace, count_validations
from gyral.training import build
from gyral.training.pace import STEPS, measure_pace
from tests.helpers.running import SMALL_RECALL, compose_config

WORDS = (*SMALL_RECALL, "model=gru", "trainer.max_steps=1000", "trainer.val_check_interval=300", "logger=none")


def test_a_pace_has_all_parts_of_a_run_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    config = compose_config(*WORDS, "task.batch_size=4", "task.val_size=8", "task.test_size=80", "threads=1")
    data: Any = build.build_task(config).data
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    pace = measure_pace(config, 5.0)
    assert pace is not None
    assert (pace.steps, pace.validations, pace.measured) == (1000, 4, STEPS)
    assert min(pace.start, pace.step, pace.validation) > 0
    validation, test = (len(data.loader(split)) for split in ("val", "test"))
    assert test > validation
    assert pace.test == pytest.approx(pace.validation * test / validation)
    assert pace.spent < 50 * pace.work
    assert torch.get_num_threads() == threads
    assert not list(tmp_path.iterdir())
    assert "".join(capfd.readouterr()) == ""
    assert logging.root.manager.disable == logging.NOTSET


def test_slow_steps_are_measured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    pace = measure_pace(compose_config(*WORDS), 0.0)
    assert pace is not None
    assert pace.measured == 2


def test_a_run_of_several_processes_is_not_measured() -> None:
    assert measure_pace(compose_config(*WORDS, "trainer=ddp"), 1.0) is None


def test_the_work_of_a_run_equals_that_of_all_its_parts() -> None:
    assert Pace(start=9, step=0.5, steps=10, validation=2, validations=3, test=7).work == 5 + 6 + 7


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
