"""Speed, memory and sizes."""

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gyral.training.callbacks import (
    Statistics,
)
from tests.helpers.running import (
    SMALL_RECALL,
    invoke,
)
from tests.training.callbacks.conftest import TEXT


def test_statistics_count_parameters_and_state(task: Any) -> None:
    noted: dict[str, int] = {}
    logger = SimpleNamespace(log_hyperparams=noted.update)
    Statistics().on_train_start(SimpleNamespace(loggers=[logger]), task)
    assert noted == {"parameters": sum(p.numel() for p in task.parameters()), "state_size": 4}


def test_statistics_are_in_the_metrics_and_the_results(tmp_path: Path) -> None:
    outcome = invoke(*SMALL_RECALL, "model=gru", "trainer.max_steps=4", f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    with (tmp_path / "metrics.csv").open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["train/seconds_a_step"])
    assert 0 < float(row["train/seconds_a_step"]) < 60
    assert 50 < float(row["train/peak_memory_mb"]) < 1e5


def test_speed_is_split_into_shares(tmp_path: Path) -> None:
    assert invoke(*TEXT, "model.cell.hidden_size=64", f"hydra.run.dir={tmp_path}").status == 0
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["train/seconds_a_step"]]
    assert len(rows) == 12
    for row in rows:
        assert float(row["train/tokens_a_second"]) == pytest.approx(48 / float(row["train/seconds_a_step"]), rel=1e-6)
        step, recurrence = (float(row[f"train/share_outside_{what}"]) for what in ("step", "recurrence"))
        assert 0 < step < recurrence < 1
