"""Recording the memory: complete, resumable, without effect on training."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from gyral.core.errors import UserError
from gyral.figures.keys import read_locations
from gyral.models.memory_trace import Keys, MemoryTrace
from gyral.tasks.base import SequenceTask
from gyral.training.callbacks.memory_trace import MemoryTraces, to_row
from tests.helpers.running import SMALL_ALGORITHM, assert_same_run, build_task, invoke, train

LANTM = (*SMALL_ALGORITHM, "model=lantm", "optimizer.lr=0.02")


@pytest.mark.slow
def test_recording_changes_no_bit_of_the_training(memory_run: Path, tmp_path: Path) -> None:
    assert_same_run(train(tmp_path / "run", *LANTM), memory_run)


def test_a_row_is_recorded_at_each_validation(memory_run: Path) -> None:
    with (memory_run / "memory_trace.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["7", "15", "23"]
    assert all(value for row in rows for value in row.values())
    assert 0 < float(rows[0]["gate/read step/0"]) < 1
    assert "strength/4" in rows[0], "four symbols and the mark before them are written"
    assert "strength/5" not in rows[0]


@pytest.mark.slow
def test_a_resumed_run_has_every_row_once(memory_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = SequenceTask.training_step

    def fail_late(self: Any, batch: Any, index: int) -> Tensor:
        if self.global_step == 17:
            raise MemoryError
        return step(self, batch, index)

    with monkeypatch.context() as patch:
        patch.setattr(SequenceTask, "training_step", fail_late)
        assert invoke(*LANTM, "callbacks=memory_trace", f"hydra.run.dir={tmp_path}").status == 1
    assert len(read_locations(tmp_path)[0]) == 2
    train(tmp_path, *LANTM, "callbacks=memory_trace")
    assert (tmp_path / "memory_trace.csv").read_text() == (memory_run / "memory_trace.csv").read_text()


def test_a_row_has_only_writes_that_are_allowed() -> None:
    plane = np.arange(4.0).reshape(2, 2)
    keys = Keys(plane, plane + 10, np.array([0.5, 0.75]), np.array([1, 1]))
    row = to_row(MemoryTrace(np.array([True, False]), {"a/b": np.array([0.25, 1.0])}, {}, keys))
    assert row == {
        **{"read_x/0": 0, "read_x/1": 2, "read_y/0": 1, "read_y/1": 3},
        **{"write_x/0": 10, "write_y/0": 11, "strength/0": 0.5, "gate/a/b/0": 0.25, "gate/a/b/1": 1},
    }
    assert list(to_row(MemoryTrace(np.ones(1, bool), {"g": np.ones(1)}, {}, None))) == ["gate/g/0"]


def test_a_model_without_external_memory_is_refused() -> None:
    told = r"^callbacks\.memory_trace: LSTMCell has no external memory; use it with a LANTMCell$"
    with pytest.raises(UserError, match=told):
        MemoryTraces().check_task(build_task(*SMALL_ALGORITHM, "model=lstm"))
