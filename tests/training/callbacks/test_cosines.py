"""Recording cosines: complete, resumable, without effect on training."""

import csv
import functools
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gyral
from gyral.core.errors import OptionError
from gyral.figures.cosines import read_cosines
from gyral.models.sequence import SequenceModel
from gyral.runs.directory import Run, load_run
from gyral.tasks.base import SequenceTask
from gyral.training import build
from gyral.training.callbacks.cosines import Cosines
from tests.figures.conftest import RUM
from tests.helpers.running import SMALL_RECALL, assert_same_run, invoke, load_last, train

WITH_COSINES = (*RUM, "callbacks=cosines", "task.monitor=val/loss", "task.mode=max")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose cosines were recorded, after steps 8, 16 and 24; its best checkpoint is not its last.

    It failed after step 17 and was resumed at its checkpoint of step 15. The rows of before are in earlier.csv.
    """
    directory = tmp_path_factory.mktemp("runs") / "run"
    fail_and_resume(directory)
    return directory


def fail_and_resume(directory: Path, *arguments: str) -> None:
    step = SequenceTask.training_step

    def fail_late(self: Any, batch: Any, index: int) -> Tensor:
        if self.global_step == 17:
            raise MemoryError
        return step(self, batch, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SequenceTask, "training_step", fail_late)
        assert invoke(*WITH_COSINES, *arguments, f"hydra.run.dir={directory}").status == 1
    shutil.copyfile(directory / "cosines.csv", directory / "earlier.csv")
    with (directory / "cosines.csv").open("a") as file:
        file.write("23,0.1,0.")  # cut off by a crash
    assert len(read_cosines(directory)[0]) == 2
    train(directory, *WITH_COSINES, *arguments)


@pytest.fixture
def run(directory: Path) -> Run:
    return load_run(directory)


def rows_of(directory: Path) -> list[dict[str, str]]:
    with (directory / "cosines.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_recording_changes_no_bit_of_the_training(directory: Path, tmp_path: Path) -> None:
    assert_same_run(train(tmp_path / "run", *(word for word in WITH_COSINES if word != "callbacks=cosines")), directory)


def test_a_row_of_shares_is_recorded_at_each_validation(directory: Path) -> None:
    rows = rows_of(directory)
    assert [row.pop("step") for row in rows] == ["7", "15", "23"]
    assert list(map(float, rows[0])) == pytest.approx(np.linspace(-0.98, 0.98, 50))
    for row in rows:
        assert sum(map(float, row.values())) == pytest.approx(1, abs=1e-12)


def test_the_shares_agree_with_cosines_recomputed_from_a_checkpoint(directory: Path, run: Run) -> None:
    run.config.model.backend = "reference"
    task = build.build_task(run.config)
    task.load_state_dict(load_last(directory)["state_dict"])
    task.eval()
    recurrent = task.model.recurrent
    with torch.no_grad(), recurrent.cells[0].record_cosines() as cosines:
        task(next(iter(task.data.loader("val"))))
    total = torch.stack(cosines).numel()
    assert total == 8 * 7  # sequences, steps of four characters, two marks and the query
    counts, _ = np.histogram(torch.stack(cosines).clamp(-1, 1).numpy(), bins=50, range=(-1, 1))
    _, _, shares = read_cosines(directory)
    difference = np.abs(shares * total - counts).sum(axis=1)
    assert difference[-1] <= 2  # rounding may put one on the other side of a bin's edge
    assert difference[0] > 10


def test_a_resumed_run_has_every_row_once(directory: Path) -> None:
    earlier = (directory / "earlier.csv").read_text()
    assert (directory / "cosines.csv").read_text().startswith(earlier), (
        "the row of step 16 is recorded again, as it was"
    )


@pytest.mark.slow
def test_a_row_of_before_the_checkpoint_is_kept(directory: Path, tmp_path: Path) -> None:
    fail_and_resume(tmp_path, "callbacks.checkpoints.every=8")
    assert (tmp_path / "cosines.csv").read_text() == (directory / "cosines.csv").read_text()


class Turning(nn.Module):
    """Stands in for a task whose model has two cells that record given cosines."""

    def __init__(self, *cosines: Tensor) -> None:
        super().__init__()
        self.cells = nn.ModuleList(TurningCell(given) for given in cosines)

    def forward(self, batch: Any) -> None:
        for cell in self.cells:
            if cell.recorded is not None:
                cell.recorded += [cell.given]


class TurningCell(nn.Module):
    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.given, self.recorded = given, None

    @contextmanager
    def record_cosines(self) -> Iterator[list[Tensor]]:
        self.recorded = []
        yield self.recorded
        self.recorded = None


def record(task: nn.Module, directory: Path, batch: Any = "batch") -> None:
    """Take the part of a validation that records."""
    callback, state = Cosines(), SimpleNamespace(fn="fit")
    trainer: Any = SimpleNamespace(state=state, global_step=0, default_root_dir=directory)
    callback.on_train_start(trainer, task)
    trainer.global_step = 5
    callback.inspect(trainer, task, batch)


def test_any_cell_that_records_is_counted_and_rounding_beyond_one_is_not_lost(tmp_path: Path) -> None:
    record(Turning(torch.tensor([1.0000001, -1.0000001]), torch.tensor([0.5, 0.51])), tmp_path)
    [row] = rows_of(tmp_path)
    assert {name: value for name, value in row.items() if float(value)} == {
        "step": "4",
        "-0.98": "0.25",
        "0.5": "0.5",
        "0.98": "0.25",
    }
    assert len(row) == 51


def test_steps_beyond_the_length_of_a_row_do_not_count(tmp_path: Path) -> None:
    given = torch.tensor([[0.5, 0.9], [0.505, 0.9], [0.51, torch.nan]])  # three steps of two rows
    cells = Turning(*given)
    cells.cells = nn.ModuleList([Steps(given), Steps(given.repeat_interleave(2, dim=0))])  # one runs twice a step
    cells.model = SequenceModel(functools.partial(gyral.GRUCell, hidden_size=2), 3, 3)
    batch = SimpleNamespace(inputs=torch.zeros(2, 3, 1), lengths=torch.tensor([3, 1]))
    record(cells, tmp_path, batch)
    [row] = rows_of(tmp_path)
    assert {name: value for name, value in row.items() if float(value)} == {"step": "4", "0.5": "0.75", "0.9": "0.25"}


class Steps(TurningCell):
    @contextmanager
    def record_cosines(self) -> Iterator[list[Tensor]]:
        yield [*self.given]


def test_a_model_without_cosines_is_refused(tmp_path: Path) -> None:
    told = invoke(*SMALL_RECALL, "model=lstm", "callbacks=cosines", f"hydra.run.dir={tmp_path}/run").error
    assert told == "callbacks.cosines: LSTMCell records no cosines; use it with a RUMCell"
    silent = Turning(torch.ones(2))
    silent.forward = lambda batch: None  # type: ignore[method-assign]
    with pytest.raises(OptionError, match=r"^model\.backend=graph: does not record cosines; use one of ref"):
        record(silent, tmp_path)
