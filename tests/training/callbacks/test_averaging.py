"""Averaged weights are the mean, are evaluated, and resume."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.training.callbacks.averaging import Averaging
from gyral.training.callbacks.statistics import Statistics
from tests.helpers.moments import copy_at, train_and_copy
from tests.helpers.recorder import Recorder
from tests.helpers.running import (
    SMALL_COPY,
    assert_same,
    assert_same_run,
    invoke,
    load_last,
    read_rows,
)
from tests.training.callbacks.conftest import TEXT

MOMENTS = [("before_step", 8), ("before_step", 14), ("after_replace", 18)]
ASGD = (*TEXT, "optimizer=sgd", "callbacks=averaging", "callbacks.averaging.start=10")


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 24 steps, validated at 8, 16 and 24, whose weights are averaged after the 11th.

    Beside it are its copies of `MOMENTS`.
    """
    directory = tmp_path_factory.mktemp("runs") / "averaged"
    train_and_copy(directory, MOMENTS, *ASGD)
    return directory


def test_averaged_weights_are_the_mean_since_the_start_and_what_is_evaluated(
    averaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[dict[str, torch.Tensor]] = []

    class Recording(Statistics):
        def on_train_batch_end(self, trainer: Any, task: Any, *rest: Any) -> None:
            super().on_train_batch_end(trainer, task, *rest)
            weights.append({name: value.clone() for name, value in task.state_dict().items()})

    monkeypatch.setattr("gyral.training.callbacks.statistics.Statistics", Recording)
    assert invoke(*TEXT, "optimizer=sgd", f"hydra.run.dir={tmp_path}").status == 0
    checkpoint = load_last(averaged)
    for name, value in checkpoint["state_dict"].items():
        mean = torch.stack([step[name] for step in weights[10:]]).double().mean(dim=0)
        torch.testing.assert_close(value.double(), mean, rtol=1e-5, atol=1e-7)
    # validated with the mean: as the plain run before the start, not after
    scores = [[row["val/loss"] for row in read_rows(run) if row["val/loss"]] for run in (averaged, tmp_path)]
    assert scores[0][0] == scores[1][0]
    assert scores[0][1] != scores[1][1]
    saved = tmp_path / "evaluation.json"
    assert invoke(f"run={averaged}", "checkpoint=last", "split=val", f"save={saved}", entry="evaluate").status == 0
    assert json.loads(saved.read_text())["numbers"]["val/loss"] == pytest.approx(float(scores[0][2]), rel=1e-5)
    # tested with the mean, too
    best = torch.load(averaged / "checkpoints" / "best.ckpt", weights_only=True)
    assert any((value != best["current_model_state"][name]).any() for name, value in best["state_dict"].items())
    assert invoke(f"run={averaged}", f"save={saved}", entry="evaluate").status == 0
    tested = json.loads(saved.read_text())["numbers"]["test/loss"]
    assert tested == pytest.approx(json.loads((averaged / "DONE").read_text())["test/loss"], rel=1e-5)


@pytest.mark.named("before_step-14")
@pytest.mark.parametrize(("point", "step"), MOMENTS)
def test_a_killed_run_averages_the_same_weights(averaged: Path, tmp_path: Path, point: str, step: int) -> None:
    killed = Path(shutil.copytree(copy_at(averaged, point, step), tmp_path / "killed"))
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(averaged, killed)
    assert_same(load_last(averaged)["averaging_state"], load_last(killed)["averaging_state"])


@pytest.mark.parametrize(
    ("mode", "scores", "starts"),
    [
        ("min", [5, 4, 3, 2, 3, 3, 3], 6),  # worse than the best of those more than two validations back
        ("max", [1, 2, 3, 4, 3, 3, 3], 6),
        ("min", [5, 4, 3, 4, 2, 1, 0], None),
    ],
)
def test_averaging_starts_when_the_monitored_metric_stops_improving(
    task: Any, mode: str, scores: list[float], starts: int | None
) -> None:
    task.mode = mode
    averaging = Averaging(patience=2)
    trainer = Recorder(task)
    started = []
    for index, score in enumerate(scores):
        trainer.callback_metrics = {task.monitor: torch.tensor(float(score))}
        averaging.on_validation_end(trainer, task)
        if averaging.should_update(step_idx=1):
            started.append(index)
    assert (started[0] if started else None) == starts
    assert not averaging.should_update(epoch_idx=1)


def test_a_cell_whose_base_changes_is_refused(tmp_path: Path) -> None:
    words = (*SMALL_COPY, "model=dtriv", "callbacks=averaging", f"hydra.run.dir={tmp_path}/run")
    assert invoke(*words).error.startswith("callbacks.averaging: DTRIVCell changes its base in training")


@pytest.mark.parametrize("options", [{"start": -1}, {"start": 1.5}, {"patience": 0}])
def test_when_averaging_starts_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"^{next(iter(options))}="):
        Averaging(**options)
