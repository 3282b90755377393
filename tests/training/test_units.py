"""Options with a unit: each is what its documentation says, also where a step accumulates the gradients of batches."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from gyral.runs.metrics_file import read_metrics
from gyral.tasks.text import TextTask
from gyral.training.callbacks.checkpoints import Checkpoints
from tests.helpers.found import at_least
from tests.helpers.running import CONF, SMALL_RECALL, assert_same_run, invoke, load_last, small_text

UNITS = r"\b(steps?|seconds?|epochs?|MB|GB|batch(?:es)?|validations?|minutes|hours|days)\b"
# The options of training, of sweeps and of callbacks whose comments name a unit, with the test that verifies it.
# "here" is this file.
TESTED = {
    "trainer/default.yaml val_check_interval": "here",
    "scheduler/step.yaml step_size": "here",
    "scheduler/multistep.yaml milestones": "here",
    "scheduler/piecewise.yaml milestones": "tests/training/test_schedules.py",
    "scheduler/wsd.yaml warmup": "tests/training/test_schedules.py",
    "scheduler/cosine.yaml warmup": "here",
    "scheduler/plateau.yaml patience": "tests/training/test_schedules.py",
    "scheduler/recent_best.yaml window": "tests/training/test_schedules.py",
    "callbacks/default.yaml checkpoints.every": "here",
    "callbacks/default.yaml guard.every": "tests/training/callbacks/test_finite_guard.py",
    "callbacks/default.yaml early_stopping.patience": "tests/training/callbacks/test_early_stopping.py",
    "callbacks/default.yaml progress_bar.seconds": "tests/training/callbacks/test_progress_bar.py",
    "callbacks/early_stopping.yaml early_stopping.patience": "tests/training/callbacks/test_early_stopping.py",
    "callbacks/averaging.yaml averaging.start": "here",
    "callbacks/averaging.yaml averaging.patience": "tests/training/callbacks/test_averaging.py",
    "sweep/tune.yaml n_warmup_steps": "tests/sweeps/test_optuna.py",
    "launcher/slurm.yaml slurm_signal_delay_s": "tests/sweeps/test_slurm.py",
    "launcher/slurm.yaml timeout_min": "tests/sweeps/test_slurm.py",
}
# comments that describe a choice rather than an option
DESCRIBED = ("boxes", "cosines", "ddp", "label_curriculum", "memory_trace", "norms", "positions")
ACCUMULATED = (
    *(word for word in SMALL_RECALL if not word.startswith(("callbacks.", "trainer.", "task.batch_size"))),
    "trainer.accelerator=cpu",
    "task.batch_size=4",
    "model=gru",
    "+trainer.accumulate_grad_batches=2",
    "trainer.max_steps=12",
    "trainer.val_check_interval=4",
    "trainer.log_every_n_steps=1",
    "callbacks.checkpoints.every=3",
    "optimizer=sgd",
    "optimizer.lr=1",
)


def test_every_option_whose_comment_names_a_unit_is_tested() -> None:
    files = {name.split()[0] for name in TESTED}
    folders = [CONF / folder for folder in ("trainer", "scheduler", "callbacks")]
    for path in at_least(20, (path for folder in folders for path in sorted(folder.glob("*.yaml")))):
        place = f"{path.parent.name}/{path.name}"
        if re.search(UNITS, "\n".join(re.findall(r"#.*", path.read_text()))) and place not in files:
            assert path.stem in DESCRIBED, place
    for name, place in TESTED.items():
        assert place == "here" or (CONF.parent / place).is_file(), name


def run(directory: Path, *words: str) -> None:
    outcome = invoke(*ACCUMULATED, *words, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err


def test_intervals_are_in_steps_of_several_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    save = Checkpoints._save_last

    def record(self: Any, trainer: Any) -> None:
        validated = "val/loss" in trainer.callback_metrics
        saved.append((trainer.global_step, trainer.fit_loop.epoch_loop.batch_progress.current.ready, validated))
        save(self, trainer)

    monkeypatch.setattr(Checkpoints, "_save_last", record)
    schedule = ("scheduler=step", "scheduler.step_size=5", "scheduler.gamma=0.5")
    run(tmp_path / "run", *schedule, "callbacks=averaging", "callbacks.averaging.start=8")
    assert read_metrics(tmp_path / "run", "val/loss")[0] == [4, 8, 12]
    steps, rates = read_metrics(tmp_path / "run", "train/learning_rate")
    assert steps == list(range(1, 13))
    assert rates == [1.0] * 5 + [0.5] * 5 + [0.25] * 2
    assert saved == [(3, 6, False), (6, 12, True), (9, 18, True), (12, 24, True)]
    assert int(load_last(tmp_path / "run")["averaging_state"]["n_averaged"]) == 4, "from step 8 on"


@pytest.mark.slow
def test_milestones_are_in_steps(tmp_path: Path) -> None:
    run(tmp_path, "scheduler=multistep", "scheduler.milestones=[3,9]")
    rates = read_metrics(tmp_path, "train/learning_rate")[1]
    assert rates == pytest.approx([1.0] * 3 + [0.1] * 6 + [0.01] * 3)


@pytest.mark.parametrize("stopped", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_a_run_that_accumulates_resumes_as_it_was(
    stopped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, copied, save = tmp_path / "whole", tmp_path / "copied", Checkpoints._save_last

    def save_and_copy(self: Any, trainer: Any) -> None:
        save(self, trainer)
        if trainer.global_step == stopped:
            shutil.copytree(whole, copied, dirs_exist_ok=True)

    with monkeypatch.context() as context:
        context.setattr(Checkpoints, "_save_last", save_and_copy)
        schedule = ("scheduler=cosine", "scheduler.warmup=4", "scheduler.eta_min=1")
        run(whole, *schedule, "callbacks.checkpoints.every=1")
    assert read_metrics(whole, "train/learning_rate")[1] == pytest.approx([0.25, 0.5, 0.75, *[1.0] * 9]), "in steps"
    assert invoke(f"resume={copied}").status == 0
    assert_same_run(whole, copied)


def test_windows_of_random_length_set_the_rate_of_a_step_by_their_mean(tmp_path: Path) -> None:
    words = [word for word in small_text(tmp_path) if not word.startswith("trainer.")]
    varied = ("task.window_deviation=8", "optimizer=sgd", "optimizer.lr=1", "+trainer.accumulate_grad_batches=2")
    few = ("trainer.max_steps=2", "trainer.log_every_n_steps=1", "trainer.accelerator=cpu", "model=gru")
    rates: list[float] = []
    lengths: list[int] = []
    start, step = TextTask.on_train_batch_start, TextTask.__mro__[1].optimizer_step

    def begin(self: Any, batch: Any, index: int) -> None:
        lengths.append(batch.inputs.shape[1])
        start(self, batch, index)

    def record(self: Any, epoch: int, index: int, optimizer: Any, closure: Any = None) -> None:
        rates.append(optimizer.param_groups[0]["lr"])
        step(self, epoch, index, optimizer, closure)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(TextTask, "on_train_batch_start", begin)
        context.setattr(TextTask.__mro__[1], "optimizer_step", record)
        assert invoke(*words, *varied, *few, f"hydra.run.dir={tmp_path / 'run'}").status == 0
    assert rates == pytest.approx([sum(lengths[:2]) / 2 / 40, sum(lengths[2:]) / 2 / 40])
