"""The loss at each position of a window."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.core.errors import UserError
from gyral.training.callbacks.positions import Positions
from tests.helpers.running import (
    invoke,
    read_rows,
)
from tests.training.callbacks.conftest import TEXT


def test_each_validation_writes_a_row_of_positions_that_average_to_the_loss(tmp_path: Path) -> None:
    assert invoke(*TEXT, "callbacks=positions", f"hydra.run.dir={tmp_path}").status == 0
    with (tmp_path / "positions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["7", "15", "23"]
    losses = [float(row["val/loss"]) for row in read_rows(tmp_path) if row["val/loss"]]
    for row, loss in zip(rows, losses, strict=True):
        assert list(row) == ["step", *map(str, range(12))]
        # all windows but the first of the rows that warm up and the last have every position
        assert np.mean([float(row[str(place)]) for place in range(12)]) == pytest.approx(loss, rel=0.01)


def test_a_window_of_one_step_has_one_position(tmp_path: Path) -> None:
    options = ("callbacks=positions", "task.window=1", "trainer.max_steps=8", f"hydra.run.dir={tmp_path}")
    assert invoke(*TEXT, *options).status == 0
    with (tmp_path / "positions.csv").open(newline="") as file:
        assert [[*row] for row in csv.DictReader(file)] == [["step", "0"]]


def test_positions_need_windows(task: Any) -> None:
    with pytest.raises(UserError, match=r"^callbacks.positions: RecallTask has no windows; use it with a TextTask$"):
        Positions().check_task(task)
