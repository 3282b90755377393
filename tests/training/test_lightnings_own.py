"""Loggers, callbacks and schedules of Lightning and torch, through files of the user's, do what they say."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.helpers.running import SMALL_RECALL, Outcome, invoke, read_rows

RUN = (
    *(word for word in SMALL_RECALL if not word.startswith(("trainer.max_steps", "trainer.val_check", "logger="))),
    *("model=gru", "optimizer=sgd", "optimizer.lr=0.1", "trainer.max_steps=8", "trainer.val_check_interval=2"),
)
CALLBACKS, LOGGERS, SCHEDULES = "pytorch_lightning.callbacks", "pytorch_lightning.loggers", "torch.optim.lr_scheduler"
slow = pytest.mark.slow


def run_with(group: str, target: str, options: dict[str, Any], *words: str) -> Outcome:
    """Train in the current directory, in run/, with a file of the user's conf/."""
    folder = Path("conf", group)
    folder.mkdir(parents=True)
    section = {"_target_": target, **options}
    content = {"_partial_": True, **section} if group == "scheduler" else {"own": section}
    begin = "defaults: [default, _self_]\n" if group == "callbacks" else ""
    (folder / "own.yaml").write_text(begin + yaml.dump(content), encoding="utf-8")
    others = ["logger=none"] if group != "logger" else []
    return invoke(*RUN, f"{group}=own", *others, *words, "hydra.run.dir=run")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def logged_by_csv(folder: str) -> None:
    with Path(folder, "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for name, steps in (("train/loss", ["1", "3", "5", "7"]), ("val/loss", ["1", "3", "5", "7"]), ("test/loss", ["8"])):
        assert [row["step"] for row in rows if row[name]] == steps, name
    assert "max_steps" in Path(folder, "hparams.yaml").read_text(encoding="utf-8")


def events(folder: str) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(folder)
    found.Reload()
    assert [event.step for event in found.Scalars("val/loss")] == [1, 3, 5, 7]


@pytest.mark.parametrize(
    ("name", "options", "check", "folder"),
    [
        ("CSVLogger", {}, logged_by_csv, "run/lightning_logs/version_0"),
        pytest.param(*("CSVLogger", {"save_dir": "mine", "name": "n"}), logged_by_csv, "mine/n/version_0", marks=slow),
        pytest.param("TensorBoardLogger", {}, events, "run/lightning_logs/version_0", marks=slow),
        pytest.param("TensorBoardLogger", {"save_dir": "mine"}, events, "mine/lightning_logs/version_0", marks=slow),
    ],
)
def test_a_logger_of_lightning_logs(
    name: str, options: dict[str, Any], check: Callable[[str], None], folder: str
) -> None:
    outcome = run_with("logger", f"{LOGGERS}.{name}", options)
    assert outcome.status == 0, outcome.err
    assert "has all metrics" not in outcome.err, "it has failed"
    check(folder)


@slow
@pytest.mark.parametrize("name", ["MLFlowLogger", "CometLogger"])
def test_a_logger_without_its_package_is_refused(name: str) -> None:
    package = {"MLFlowLogger": "mlflow", "CometLogger": "comet"}[name]
    pytest.importorskip("pytorch_lightning")
    outcome = run_with("logger", f"{LOGGERS}.{name}", {})
    assert package in outcome.error


def test_a_missing_option_of_a_logger_is_named() -> None:
    error = run_with("logger", "tests.training.test_lightnings_own.NeedsProject", {}).error
    assert error.startswith("logger.own.project=null: must be given")
    assert not Path("run").exists()


class NeedsProject:
    def __init__(self, project: str) -> None:
        raise AssertionError("it is not made")


def stops_early(_: Outcome) -> None:
    assert [row["step"] for row in read_rows(Path("run")) if row["val/loss"]] == ["1", "3"]


def logs(column: str, *values: str) -> Callable[[Outcome], None]:
    def check(_: Outcome) -> None:
        found = [row[column] for row in read_rows(Path("run")) if row.get(column)]
        assert found[: len(values)] == list(values) if values else found

    return check


def keeps(*names: str) -> Callable[[Outcome], None]:
    return lambda _: sorted(path.name for path in Path("mine").iterdir()) == sorted(names) or pytest.fail("other files")


def saves_the_average(_: Outcome) -> None:
    checkpoint = torch.load("run/checkpoints/last.ckpt", weights_only=True)
    current = checkpoint["current_model_state"]
    assert any((value != current[name]).any() for name, value in checkpoint["state_dict"].items())


def takes_another_rate(_: Outcome) -> None:
    rates = {row["train/learning_rate"] for row in read_rows(Path("run")) if row["train/learning_rate"]}
    assert len(rates) == 1
    assert rates != {"0.1"}


def prints(*texts: str) -> Callable[[Outcome], None]:
    return lambda outcome: [pytest.fail(text) for text in texts if text not in outcome.out + outcome.err] and None


WORKING: dict[str, tuple[dict[str, Any], Callable[[Outcome], None]]] = {
    "EarlyStopping": ({"monitor": "val/loss", "patience": 1, "mode": "max"}, stops_early),
    "LearningRateMonitor": ({"logging_interval": "step"}, logs("lr-SGD", "0.1", "0.1", "0.1", "0.1")),
    "DeviceStatsMonitor": ({}, logs("DeviceStatsMonitor.on_train_batch_end/cpu_percent")),
    "ModelCheckpoint": (
        {"every_n_train_steps": 4, "save_top_k": -1, "dirpath": "mine"},
        keeps("epoch=0-step=4.ckpt", "epoch=0-step=8.ckpt"),
    ),
    "RichModelSummary": ({}, prints("SequenceModel")),
    "WeightAveraging": ({}, saves_the_average),
    "EMAWeightAveraging": ({"decay": 0.5}, saves_the_average),
    "LearningRateFinder": ({"num_training_steps": 30}, takes_another_rate),
    "TQDMProgressBar": ({}, prints("8/8")),
    "RichProgressBar": ({}, lambda _: None),
}


@slow
@pytest.mark.parametrize("name", WORKING)
@pytest.mark.filterwarnings("ignore::UserWarning")  # Lightning's own
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_callback_of_lightning_does_what_it_says(name: str) -> None:
    options, check = WORKING[name]
    outcome = run_with("callbacks", f"{CALLBACKS}.{name}", options)
    assert outcome.status == 0, outcome.err
    check(outcome)


@slow
def test_a_timer_ends_a_run() -> None:
    words = ("trainer.max_steps=1000000", "trainer.val_check_interval=1000000")
    outcome = run_with("callbacks", f"{CALLBACKS}.Timer", {"duration": {"seconds": 1}}, *words)
    assert outcome.status == 0, outcome.err
    assert Path("run/DONE").exists()


@slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_checkpoint_is_written_on_an_exception() -> None:
    outcome = run_with("callbacks", f"{CALLBACKS}.OnExceptionCheckpoint", {"dirpath": "mine"}, "optimizer.lr=1e38")
    assert "NonFiniteError" in outcome.error
    keeps("on_exception.ckpt")(outcome)
    assert "warn" not in outcome.err.lower()


@slow
def test_a_checkpoint_of_lightning_needs_no_other_callback() -> None:
    Path("conf/callbacks").mkdir(parents=True)
    own = {"_target_": f"{CALLBACKS}.ModelCheckpoint", "every_n_train_steps": 8, "dirpath": "mine"}
    Path("conf/callbacks/alone.yaml").write_text(yaml.dump({"own": own}), encoding="utf-8")
    words = [word for word in RUN if not word.startswith(("callbacks.", "~callbacks"))]
    outcome = invoke(*words, "logger=none", "callbacks=alone", "hydra.run.dir=run")
    assert outcome.status == 0, outcome.err
    keeps("epoch=0-step=8.ckpt")(outcome)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("GradientAccumulationScheduler", {"scheduling": {0: 2}}, "trainer.accumulate_grad_batches"),
        pytest.param("StochasticWeightAveraging", {"swa_lrs": 0.1}, "callbacks=averaging", marks=slow),
        pytest.param("ModelPruning", {"pruning_fn": "l1_unstructured"}, "one epoch", marks=slow),
        pytest.param("BatchSizeFinder", {}, "an option of the task", marks=slow),
        pytest.param("SpikeDetection", {}, "callbacks.finite_guard", marks=slow),
        pytest.param("BackboneFinetuning", {}, "backbone", marks=slow),
    ],
)
def test_a_callback_that_cannot_work_is_refused(name: str, options: dict[str, Any], reason: str) -> None:
    error = run_with("callbacks", f"{CALLBACKS}.{name}", options).error
    assert error.startswith(f"callbacks.own._target_={CALLBACKS}.{name}: does not work here: ")
    assert reason in error
    assert not Path("run").exists()


@slow
@pytest.mark.parametrize(
    ("name", "options", "rates"),
    [
        ("LinearLR", {"start_factor": 0.5, "total_iters": 4}, [0.0625, 0.0875, 0.1, 0.1]),
        ("ExponentialLR", {"gamma": 0.5}, [0.05, 0.0125, 0.003125, 0.00078125]),
        ("PolynomialLR", {"total_iters": 8}, [0.0875, 0.0625, 0.0375, 0.0125]),
        ("ConstantLR", {"factor": 0.5, "total_iters": 3}, [0.05, 0.1, 0.1, 0.1]),
        ("CosineAnnealingWarmRestarts", {"T_0": 3}, [0.075, 0.1, 0.025, 0.075]),
        ("ReduceLROnPlateau", {"patience": 0, "threshold": 10.0, "threshold_mode": "abs"}, [0.1, 0.1, 0.01, 0.001]),
        ("CyclicLR", {"base_lr": 0.1, "max_lr": 1.0, "step_size_up": 2}, [0.55, 0.55, 0.55, 0.55]),
    ],
)
def test_a_schedule_of_torch_sets_the_learning_rate(name: str, options: dict[str, Any], rates: list[float]) -> None:
    outcome = run_with("scheduler", f"{SCHEDULES}.{name}", options)
    assert outcome.status == 0, outcome.err
    found = [float(row["train/learning_rate"]) for row in read_rows(Path("run")) if row["train/learning_rate"]]
    assert found == pytest.approx(rates)


@pytest.mark.parametrize("choice", ["none", pytest.param("own", marks=slow)])
def test_options_of_callbacks_that_are_off_are_ignored(choice: str) -> None:
    for group, content in {
        "experiment/short": "# @package _global_\ncallbacks: {checkpoints: {every: 5}, progress_bar: {seconds: 1}}\n",
        "callbacks/own": "statistics: {_target_: gyral.training.callbacks.statistics.Statistics}\n",
    }.items():
        Path("conf", group).parent.mkdir(parents=True, exist_ok=True)
        Path("conf", f"{group}.yaml").write_text(content, encoding="utf-8")
    words = [word for word in RUN if not word.startswith(("callbacks.", "~callbacks"))]
    outcome = invoke(*words, "logger=none", "experiment=short", f"callbacks={choice}", "hydra.run.dir=run")
    assert outcome.status == 0, outcome.err
    assert not Path("run/checkpoints").exists()


@slow
def test_another_callback_without_a_class_is_named() -> None:
    Path("conf/callbacks").mkdir(parents=True)
    Path("conf/callbacks/own.yaml").write_text("mine: {every: 5}\n", encoding="utf-8")
    words = [word for word in RUN if not word.startswith(("callbacks.", "~callbacks"))]
    assert invoke(*words, "logger=none", "callbacks=own", "hydra.run.dir=run").error.startswith("callbacks.mine")
