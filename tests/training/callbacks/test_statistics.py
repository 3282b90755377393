"""Speed, memory and sizes."""

import csv
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gyral.runs.directory import load_run
from gyral.runs.metrics_file import read_metrics
from gyral.training import build
from gyral.training.callbacks.statistics import Statistics
from tests.helpers.running import SMALL_RECALL, invoke
from tests.training.callbacks.conftest import TEXT


def test_statistics_count_parameters_and_state(task: Any) -> None:
    noted: dict[str, int] = {}
    logger = SimpleNamespace(log_hyperparams=noted.update)
    Statistics().on_train_start(SimpleNamespace(loggers=[logger]), task)
    assert noted == {"parameters": sum(p.numel() for p in task.parameters()), "state_size": 4}


UPDATES = ("train/learning_rate", "train/gradient_norm", "train/loss")


def logged_updates(directory: Path, *arguments: str) -> dict[str, list[float]]:
    """Train for eight steps and return what was logged of each step."""
    options = [item for item in SMALL_RECALL if not item.startswith(("trainer.max_steps", "trainer.log_every"))]
    small = [*options, "model=gru", "trainer.max_steps=8", "trainer.log_every_n_steps=1", "~callbacks.examples"]
    outcome = invoke(*small, *arguments, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return {name: read_metrics(directory, name)[1] for name in UPDATES}


@pytest.fixture(scope="module")
def updates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[float]]]:
    directory = tmp_path_factory.mktemp("runs") / "run"
    options = ("optimizer=sgd", "optimizer.lr=0.5", "scheduler=cosine", "trainer.gradient_clip_val=0.001")
    return directory, logged_updates(directory, *options)


def test_the_gradient_norm_is_that_before_clipping(updates: tuple[Path, dict[str, list[float]]]) -> None:
    directory, logged = updates
    run = load_run(directory)
    build.configure_process(run.config)
    task = build.build_task(run.config)
    task.data.trainer = SimpleNamespace(max_steps=8, accumulate_grad_batches=1)
    batch = next(iter(task.data.train_dataloader()))
    task.loss(task(batch), batch).backward()
    norm = sum(parameter.grad.square().sum().item() for parameter in task.parameters()) ** 0.5
    assert logged["train/gradient_norm"][0] == pytest.approx(norm, rel=1e-4)
    assert norm > 0.001


def test_time_and_memory_are_in_the_metrics(updates: tuple[Path, dict[str, list[float]]]) -> None:
    with (updates[0] / "metrics.csv").open(newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["train/seconds_a_step"])
    assert 0 < float(row["train/seconds_a_step"]) < 60
    assert 50 < float(row["train/peak_memory_mb"]) < 1e5


def test_the_learning_rate_equals_that_of_the_step(updates: tuple[Path, dict[str, list[float]]]) -> None:
    _, logged = updates
    assert logged["train/learning_rate"] == pytest.approx([(1 + math.cos(math.pi * k / 8)) / 4 for k in range(8)])


def test_accumulated_gradients_equal_those_of_the_whole_batch(
    updates: tuple[Path, dict[str, list[float]]], tmp_path: Path
) -> None:
    halves = ("task.batch_size=4", "+trainer.accumulate_grad_batches=2", "trainer.val_check_interval=4")
    config = ("optimizer=sgd", "optimizer.lr=0.5", "scheduler=cosine", "trainer.gradient_clip_val=0.001")
    logged = logged_updates(tmp_path, *config, *halves)
    for name in UPDATES:
        assert logged[name] == pytest.approx(updates[1][name], rel=1e-4), name
    validated, _ = read_metrics(tmp_path, "val/loss")
    assert validated == [4, 8], "after every four steps, not batches"


def test_speed_is_split_into_shares(tmp_path: Path) -> None:
    short = ("trainer.max_steps=6", "trainer.val_check_interval=6")
    assert invoke(*TEXT, "model.cell.hidden_size=64", *short, f"hydra.run.dir={tmp_path}").status == 0
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["train/seconds_a_step"]]
    assert len(rows) == 3
    for row in rows:
        assert float(row["train/tokens_a_second"]) == pytest.approx(48 / float(row["train/seconds_a_step"]), rel=1e-6)
        step, recurrence = (float(row[f"train/share_outside_{what}"]) for what in ("step", "recurrence"))
        assert 0 < step < recurrence < 1
