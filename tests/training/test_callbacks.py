"""Which checkpoints are kept, what is named when numbers go bad, and what is measured along the way."""

import csv
import json
import math
import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import TQDMProgressBar

from gyral.core.errors import OptionError
from gyral.data.batching import Batch
from gyral.training.callbacks import (
    Averaging,
    Checkpoints,
    EarlyStopping,
    Examples,
    FiniteGuard,
    NonFiniteError,
    Positions,
    ProgressBar,
    Solved,
    Statistics,
    first_non_finite,
)
from tests.helpers import killing
from tests.helpers.running import (
    SMALL,
    SMALL_RECALL,
    assert_same,
    assert_same_run,
    build_task,
    invoke,
    load_last,
    read_rows,
)

TINY = {"batch_size": 4, "train_size": 8, "val_size": 4, "test_size": 4, "length": 4}


@pytest.fixture
def task() -> Any:
    return build_task("model=gru", "task=recall", "model.cell.hidden_size=4", "model.backend=reference", **TINY)


@pytest.fixture
def batch(task: Any) -> Batch:
    return next(iter(task.data.loader("train")))


class Recorder(SimpleNamespace):
    """Stands in for the trainer: notes which checkpoints are asked for."""

    def __init__(self, task: Any, *, max_steps: int = 100, interval: int | None = 10) -> None:
        super().__init__(
            state=SimpleNamespace(fn="fit"),
            sanity_checking=False,
            callback_metrics={},
            global_step=0,
            max_steps=max_steps,
            val_check_batch=interval,
            enable_validation=interval is not None,
            lightning_module=task,
            default_root_dir="",
            saved=[],
        )

    def save_checkpoint(self, path: Path) -> None:
        self.saved.append((Path(path).name, self.global_step))

    def take_steps(self, callback: Checkpoints, last: int, scores: dict[int, float]) -> list[tuple[str, int]]:
        """Take steps up to `last`, validating where there is a score; return what was saved."""
        for self.global_step in range(1, last + 1):
            callback.on_train_batch_end(self, self.lightning_module)
            if self.global_step in scores:
                self.callback_metrics[self.lightning_module.monitor] = torch.tensor(scores[self.global_step])
                callback.on_validation_end(self, self.lightning_module)
        if last == self.max_steps:
            callback.on_train_end(self, self.lightning_module)
        return self.saved


@pytest.mark.parametrize(("mode", "best"), [("min", [10, 20, 40]), ("max", [10, 30])])
def test_best_checkpoint_follows_the_tasks_metric_and_mode(task: Any, mode: str, best: list[int]) -> None:
    task.mode = mode
    scores = {10: 0.5, 20: 0.4, 30: 0.7, 40: 0.3, 50: 0.3}
    saved = Recorder(task).take_steps(Checkpoints(every=1000), 50, scores)
    assert [step for name, step in saved if name == "best.ckpt"] == best


def test_last_checkpoint_is_written_on_time_and_at_the_end(task: Any) -> None:
    task.mode = "min"
    recorder = Recorder(task, max_steps=25)
    saved = recorder.take_steps(Checkpoints(every=4), 25, {10: 0.5, 20: 0.4})
    assert [step for name, step in saved if name == "last.ckpt"] == [4, 8, 12, 16, 20, 24, 25]
    # where a validation is due the last checkpoint holds its outcome: it is written once, after the best one
    assert saved.index(("best.ckpt", 20)) + 1 == saved.index(("last.ckpt", 20))


def test_without_validation_the_last_checkpoint_is_written_all_the_same(task: Any) -> None:
    saved = Recorder(task, interval=None, max_steps=9).take_steps(Checkpoints(every=4), 9, {})
    assert saved == [("last.ckpt", 4), ("last.ckpt", 8), ("last.ckpt", 9)]


def test_nothing_is_written_while_a_parameter_is_not_finite(task: Any) -> None:
    task.model.head.bias.data[3] = float("inf")
    recorder = Recorder(task)
    with pytest.raises(NonFiniteError, match=r"parameter model\.head\.bias is not finite after step 4"):
        recorder.take_steps(Checkpoints(every=4), 8, {})
    assert recorder.saved == []


def test_a_score_that_is_not_a_number_is_never_the_best_for_ever(task: Any) -> None:
    task.mode = "min"
    saved = Recorder(task).take_steps(Checkpoints(every=1000), 30, {10: float("nan"), 20: 0.4, 30: 0.5})
    assert ("best.ckpt", 20) in saved
    assert ("best.ckpt", 30) not in saved


def test_best_score_and_random_state_outlive_the_process(task: Any) -> None:
    task.mode = "min"
    recorder = Recorder(task)
    first = Checkpoints(every=1000)
    recorder.take_steps(first, 20, {10: 0.5, 20: 0.4})
    torch.rand(3), np.random.rand(3), random.random(), np.random.randn(), random.gauss(0, 1)
    saved = first.state_dict()
    torch.save(saved, buffer := Path("/dev/null"))
    assert buffer.exists()
    expected = (torch.rand(5), np.random.randn(5), random.gauss(0, 1), random.random())

    second = Checkpoints(every=1000)
    second.load_state_dict(saved)
    second.on_train_start(recorder, task)
    actual = (torch.rand(5), np.random.randn(5), random.gauss(0, 1), random.random())
    assert torch.equal(actual[0], expected[0])
    assert (actual[1] == expected[1]).all()
    assert actual[2:] == expected[2:]
    recorder.saved.clear()
    recorder.take_steps(second, 20, {20: 0.45})
    assert recorder.saved == []


def test_saved_state_loads_as_plain_data(tmp_path: Path) -> None:
    torch.save(Checkpoints().state_dict(), tmp_path / "state")
    torch.load(tmp_path / "state", weights_only=True)


@pytest.mark.parametrize("every", [0, -1, 2.0, "3", True])
@pytest.mark.parametrize("kind", [Checkpoints, FiniteGuard])
def test_intervals_are_positive_integers(kind: type, every: Any) -> None:
    with pytest.raises(OptionError, match=f"every={every}: must be an integer ≥ 1"):
        kind(every=every)


def test_all_finite_names_nothing(task: Any, batch: Batch) -> None:
    task.loss(task(batch), batch).backward()
    assert first_non_finite(task, batch).startswith("nothing")


@pytest.mark.parametrize("name", ["model.recurrent.cells.0.layer.weight_hh_l0", "model.head.weight"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_poisoned_parameter_is_named(task: Any, batch: Batch, name: str, value: float) -> None:
    task.get_parameter(name).data[1, 2] = value
    assert first_non_finite(task, batch) == f"parameter {name}"


@pytest.mark.parametrize("poisoned", ["model.recurrent", "model.head"])
def test_a_poisoned_layer_is_named(task: Any, batch: Batch, poisoned: str) -> None:
    def poison(module: Any, arguments: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return output[0] * float("nan"), *output[1:]
        return output * float("nan")

    handle = task.get_submodule(poisoned).register_forward_hook(poison)
    assert first_non_finite(task, batch) == f"output of {poisoned}"
    handle.remove()
    assert first_non_finite(task, batch).startswith("nothing")


def test_a_loss_that_is_not_finite_is_named(task: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "loss", lambda logits, _: logits.sum() * float("inf"))
    assert first_non_finite(task, batch) == "the loss"


def test_the_gradient_nearest_to_the_loss_is_named(task: Any, batch: Batch) -> None:
    task.loss(task(batch), batch).backward()
    for name in ("model.recurrent.cells.0.layer.weight_ih_l0", "model.recurrent.cells.0.layer.weight_hh_l0"):
        task.get_parameter(name).grad[0, 0] = float("nan")
    named = first_non_finite(task, batch)
    assert named == "gradient of model.recurrent.cells.0.layer.weight_hh_l0"
    task.model.head.weight.grad[0, 0] = float("inf")
    assert first_non_finite(task, batch) == "gradient of model.head.weight"


def test_looking_for_it_changes_nothing(task: Any, batch: Batch) -> None:
    task.loss(task(batch), batch).backward()
    before = [(p.clone(), p.grad.clone()) for p in task.parameters()]
    first_non_finite(task, batch)
    assert all(
        torch.equal(p, old) and torch.equal(p.grad, g) for p, (old, g) in zip(task.parameters(), before, strict=True)
    )
    assert not any(module._forward_hooks for module in task.modules())


def guarded(task: Any, batch: Batch, every: int, step: int, spoil: bool) -> None:
    """Take the guarded part of a training step."""
    guard = FiniteGuard(every)
    trainer = SimpleNamespace(global_step=step)
    guard.on_train_batch_start(trainer, task, batch, 0)
    loss = task.loss(task(batch), batch)
    guard.on_before_backward(trainer, task, loss)
    loss.backward()
    if spoil:
        task.model.head.weight.grad[0, 0] = float("inf")
    guard.on_before_optimizer_step(trainer, task, torch.optim.SGD(task.parameters()))


def test_the_guard_stops_a_step_and_tells_which(task: Any, batch: Batch) -> None:
    guarded(task, batch, every=1, step=7, spoil=False)
    with pytest.raises(NonFiniteError, match=r"^step 8: .* inf; first to go: gradient of model\.head\.weight$"):
        guarded(task, batch, every=1, step=7, spoil=True)
    guarded(task, batch, every=5, step=7, spoil=True)
    with pytest.raises(NonFiniteError):
        guarded(task, batch, every=5, step=10, spoil=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_the_guard_stops_at_a_loss_whose_gradients_are_finite(
    task: Any, batch: Batch, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = task.loss
    monkeypatch.setattr(task, "loss", lambda logits, batch: loss(logits, batch) + value)
    with pytest.raises(NonFiniteError, match=rf"^step 8: the loss is {value:g} .* first to go: the loss$"):
        guarded(task, batch, every=1, step=7, spoil=False)


@pytest.mark.parametrize(
    ("mode", "at", "score", "solved"),
    [
        ("max", 0.5, 0.5, True),
        ("max", 0.5, 0.4, False),
        ("min", 0.5, 0.4, True),
        ("min", 0.5, 0.6, False),
        ("max", 0.5, float("nan"), False),
        ("min", 0.5, float("nan"), False),
        ("max", None, 1.0, False),
    ],
)
def test_a_run_is_solved_by_the_tasks_metric_and_mode(
    task: Any, mode: str, at: float | None, score: float, solved: bool
) -> None:
    task.mode = mode
    callback, trainer = Solved(at), Recorder(task)
    trainer.callback_metrics[task.monitor] = torch.tensor(score)
    trainer.should_stop = False
    callback.on_validation_end(trainer, task)
    assert trainer.should_stop is callback.solved is solved


def test_a_validation_outside_of_training_ends_nothing(task: Any) -> None:
    callback, trainer = Solved(0.0), Recorder(task)
    trainer.state.fn = "validate"
    callback.on_validation_end(trainer, task)
    assert not callback.solved


@pytest.mark.parametrize("at", ["much", float("inf"), True])
def test_what_solves_a_task_is_a_number(at: Any) -> None:
    with pytest.raises(OptionError, match=f"at={at}: must be a finite number"):
        Solved(at)


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


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A run that is solved at the second of its three validations, and its arguments."""
    directory = tmp_path_factory.mktemp("runs")
    assert invoke(*SOLVED, f"hydra.run.dir={directory / 'whole'}").status == 0
    with (directory / "whole" / "metrics.csv").open(newline="") as file:
        first, second, third = [float(row["val/loss"]) for row in csv.DictReader(file) if row["val/loss"]]
    assert first > second > third
    arguments = [*SOLVED, f"callbacks.solved.at={second + 1e-4 * (first - second)}"]
    outcome = invoke(*arguments, f"hydra.run.dir={directory / 'solved'}")
    assert outcome.status == 0, outcome.err
    assert "Solved after step 16: val/loss is " in outcome.err
    return directory / "solved", arguments


def test_a_solved_run_ends_tested_and_done(solved: tuple[Path, list[str]]) -> None:
    directory, _ = solved
    results = json.loads((directory / "DONE").read_text())
    assert results["steps"] == load_last(directory)["global_step"] == 16
    assert "test/accuracy" in results
    assert torch.load(directory / "checkpoints" / "best.ckpt", weights_only=True)["global_step"] == 16
    with (directory / "metrics.csv").open(newline="") as file:
        assert max(int(row["step"]) for row in csv.DictReader(file)) == 16, "a row of the test and none after it"


@pytest.mark.parametrize(
    ("point", "step"),
    [
        ("before_step", 10),
        ("before_replace", 16),  # solved, but not in a checkpoint yet
        ("after_replace", 16),  # solved, the checkpoint is the validation's own
        ("in_test", 16),
    ],
)
def test_a_killed_run_is_solved_at_the_same_step(
    solved: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, step: int
) -> None:
    """A copy of the directory made at some moment is what a kill at that moment leaves."""
    directory, arguments = solved
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def copy_once() -> None:
        if not killed.exists():
            shutil.copytree(whole, killed)

    with monkeypatch.context() as context:
        killing.arm(point, step, act=copy_once, patch=context.setattr)
        assert invoke(*arguments, f"hydra.run.dir={whole}").status == 0
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert json.loads((killed / "DONE").read_text())["steps"] == 16
    assert_same_run(directory, killed)


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
def test_a_run_ends_once_it_gets_no_better(
    task: Any, mode: str, scores: list[float], stopped_at: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    task.mode = mode
    callback, trainer = EarlyStopping(patience=2), Recorder(task)
    trainer.should_stop = False
    for index, score in enumerate(scores):
        trainer.callback_metrics[task.monitor] = torch.tensor(score)
        # the state goes through a checkpoint between two validations
        state = callback.state_dict()
        callback = EarlyStopping(patience=2)
        callback.load_state_dict(state)
        callback.on_validation_end(trainer, task)
        assert trainer.should_stop is callback.stopped is (index == stopped_at)
        if trainer.should_stop:
            break
    started = Recorder(task)
    started.should_stop = False
    callback.on_train_start(started, task)
    assert started.should_stop is (stopped_at is not None)


def test_no_patience_ends_no_run_and_neither_does_an_evaluation(task: Any) -> None:
    trainer = Recorder(task)
    trainer.callback_metrics[task.monitor] = torch.tensor(0.5)
    for callback, fn in ((EarlyStopping(), "fit"), (EarlyStopping(patience=1), "validate")):
        trainer.state.fn = fn
        for _ in range(3):
            callback.on_validation_end(trainer, task)
        assert not callback.stopped
    with pytest.raises(OptionError, match=r"^patience=0: must be an integer"):
        EarlyStopping(patience=0)


# nothing is learned, so that the second of three validations is not better than the first
STALLED = (*SMALL_RECALL, "model=gru", "optimizer.lr=1e-9", "callbacks=early_stopping")
STALLED = (*STALLED, "callbacks.early_stopping.patience=1", "callbacks.checkpoints.every=4")


@pytest.mark.parametrize(
    ("point", "step"), [("before_step", 10), ("before_replace", 16), ("after_replace", 16), ("in_test", 16)]
)
def test_a_killed_run_stops_early_at_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, step: int
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def copy_once() -> None:
        if not killed.exists():
            shutil.copytree(whole, killed)

    with monkeypatch.context() as context:
        killing.arm(point, step, act=copy_once, patch=context.setattr)
        outcome = invoke(*STALLED, f"hydra.run.dir={whole}")
    assert outcome.status == 0, outcome.err
    assert "Stopped early after step 16: at its best val/accuracy was " in outcome.err
    assert json.loads((whole / "DONE").read_text())["steps"] == load_last(whole)["global_step"] == 16
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)


def test_examples_are_appended_with_their_step(task: Any, batch: Batch, tmp_path: Path) -> None:
    examples = Examples()
    trainer = SimpleNamespace(state=SimpleNamespace(fn="fit"), global_step=3, default_root_dir=tmp_path, loggers=[])
    examples.on_validation_end(trainer, task)
    assert not (tmp_path / "examples.txt").exists()
    examples.on_validation_batch_start(trainer, task, batch, 0)
    examples.on_validation_batch_start(trainer, task, None, 1)
    examples.on_validation_end(trainer, task)
    trainer.global_step = 6
    examples.on_validation_end(trainer, task)
    with torch.no_grad():
        drawn = task.render(batch, task(batch).argmax(-1))
    assert (tmp_path / "examples.txt").read_text() == f"step 3\n{drawn}\n\nstep 6\n{drawn}\n\n"


def drawn_steps(monkeypatch: pytest.MonkeyPatch, step_seconds: float, **options: Any) -> list[int]:
    """Return after which of ten steps of so many seconds the bar is drawn."""
    clock = iter(100 + step_seconds * step for step in range(10))
    monkeypatch.setattr("gyral.training.callbacks.time.monotonic", lambda: next(clock))
    drawn: list[int] = []
    monkeypatch.setattr(TQDMProgressBar, "on_train_batch_end", lambda *arguments: drawn.append(arguments[-1]))
    monkeypatch.setattr(ProgressBar, "total_train_batches", 10)
    bar = ProgressBar(**options)
    for index in range(10):
        bar.on_train_batch_end(None, None, None, None, index)  # type: ignore[arg-type]
    return drawn


def test_the_bar_is_drawn_by_the_clock_and_at_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn_steps(monkeypatch, 0.125) == [0, 4, 8, 9]
    assert drawn_steps(monkeypatch, 0.125, seconds=0.25) == [0, 2, 4, 6, 8, 9]
    assert drawn_steps(monkeypatch, 20.0) == list(range(10))
    assert drawn_steps(monkeypatch, 0.001, seconds=0) == list(range(10))


@pytest.mark.parametrize("options", [{"seconds": -1}, {"seconds": "x"}, {"refresh_rate": 0}])
def test_how_often_the_bar_is_drawn_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        ProgressBar(**options)


def test_the_bar_shows_the_last_loss(tmp_path: Path) -> None:
    arguments = [argument for argument in SMALL_RECALL if argument != "~callbacks.progress_bar"]
    outcome = invoke(*arguments, "model=gru", "trainer.max_steps=4", f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    with (tmp_path / "metrics.csv").open(newline="") as file:
        losses = [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]
    last = outcome.out.split("\r")[-1]
    assert f"train/loss={losses[-1]:.3g}" in last
    assert "4/4" in last


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


TEXT = (
    *(item for item in SMALL if not item.startswith(("task.", "model.cell"))),
    "task=text_file",
    "task.batch_size=4",
    "task.window=12",
    "task.warm_up=5",
    "task.corpus.val_fraction=0.004",
    "task.corpus.test_fraction=0.004",
    "model=gru",
    "model.cell.hidden_size=6",
)
ASGD = (*TEXT, "optimizer=sgd", "callbacks=averaging", "callbacks.averaging.start=10")


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 24 steps, validated at 8, 16 and 24, whose weights are averaged after the 11th."""
    directory = tmp_path_factory.mktemp("runs") / "averaged"
    outcome = invoke(*ASGD, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


def test_averaged_weights_are_the_mean_since_the_start_and_what_is_evaluated(
    averaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[dict[str, torch.Tensor]] = []

    class Recording(Statistics):
        def on_train_batch_end(self, trainer: Any, task: Any, *rest: Any) -> None:
            super().on_train_batch_end(trainer, task, *rest)
            weights.append({name: value.clone() for name, value in task.state_dict().items()})

    monkeypatch.setattr("gyral.training.callbacks.Statistics", Recording)
    assert invoke(*TEXT, "optimizer=sgd", f"hydra.run.dir={tmp_path}").status == 0
    checkpoint = load_last(averaged)
    for name, value in checkpoint["state_dict"].items():
        mean = torch.stack([step[name] for step in weights[10:]]).double().mean(dim=0)
        torch.testing.assert_close(value.double(), mean, rtol=1e-5, atol=1e-7)
    # validated with the mean: as the plain run before the start, not after
    scores = [[row["val/loss"] for row in read_rows(run) if row["val/loss"]] for run in (averaged, tmp_path)]
    assert scores[0][0] == scores[1][0]
    assert scores[0][1] != scores[1][1]
    outcome = invoke(f"run={averaged}", "checkpoint=last", "split=val", entry="evaluate")
    told = float(outcome.out.split("val/loss")[1].split()[1])
    assert told == pytest.approx(float(scores[0][2]), rel=1e-5)


@pytest.mark.parametrize(("point", "step"), [("before_step", 8), ("before_step", 14), ("after_replace", 18)])
def test_a_killed_run_averages_the_same_weights(
    averaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, step: int
) -> None:
    killed = tmp_path / "killed"

    def copy_once() -> None:
        if not killed.exists():
            shutil.copytree(tmp_path / "whole", killed)

    with monkeypatch.context() as context:
        killing.arm(point, step, act=copy_once, patch=context.setattr)
        assert invoke(*ASGD, f"hydra.run.dir={tmp_path / 'whole'}").status == 0
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
def test_averaging_starts_once_the_monitored_metric_gets_no_better(
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


@pytest.mark.parametrize("options", [{"start": -1}, {"start": 1.5}, {"patience": 0}])
def test_when_averaging_starts_is_checked(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=f"^{next(iter(options))}="):
        Averaging(**options)


def test_positions_are_a_row_a_validation_and_average_to_the_loss(tmp_path: Path) -> None:
    assert invoke(*TEXT, "callbacks=positions", f"hydra.run.dir={tmp_path}").status == 0
    with (tmp_path / "positions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["7", "15", "23"]
    losses = [float(row["val/loss"]) for row in read_rows(tmp_path) if row["val/loss"]]
    for row, loss in zip(rows, losses, strict=True):
        assert list(row) == ["step", *map(str, range(12))]
        # all windows but the first of the rows that warm up and the last have every position
        assert np.mean([float(row[str(place)]) for place in range(12)]) == pytest.approx(loss, rel=0.01)


def test_positions_need_windows(task: Any) -> None:
    with pytest.raises(OptionError, match=r"^callbacks.positions: RecallTask has no windows, TextTask has$"):
        Positions().on_train_start(SimpleNamespace(), task)


def test_speed_is_split_into_shares(tmp_path: Path) -> None:
    assert invoke(*TEXT, "model.cell.hidden_size=64", f"hydra.run.dir={tmp_path}").status == 0
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["train/seconds_a_step"]]
    assert len(rows) == 12
    for row in rows:
        assert float(row["train/tokens_a_second"]) == pytest.approx(48 / float(row["train/seconds_a_step"]), rel=1e-6)
        step, recurrence = (float(row[f"train/share_outside_{what}"]) for what in ("step", "recurrence"))
        assert 0 < step < recurrence < 1
