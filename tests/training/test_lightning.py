"""What users of Lightning expect from a module, for the tasks that `gyral.build` makes."""

import copy
import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from pytorch_lightning.tuner import Tuner

import gyral
from gyral.core.errors import OptionError, UserError
from gyral.runs.directory import resolve
from gyral.tasks.base import Task
from gyral.tasks.copy import CopyTask
from tests.faults.hostile import CANARY, TOUCH, evaluated
from tests.faults.small_runs import SMALL_RUNS
from tests.helpers.running import SMALL_RECALL

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
}
# rows, and a text with a state
SAMPLE = ("copy", "text_file")
every_task = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.slow) for name in SMALL_RUNS]
)


def assert_same_weights(one: torch.nn.Module, other: torch.nn.Module) -> None:
    assert all(torch.equal(*pair) for pair in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@functools.cache
def composed() -> Any:
    return gyral.compose(["model=gru", *SMALL_RECALL])


def small() -> Any:
    return gyral.build(copy.deepcopy(composed()))


def test_what_a_broken_evaluation_counted_is_forgotten() -> None:
    task = small()
    expected = Trainer(**SILENT).test(task, task.data)
    task.metrics.loss.update(99.0)
    assert Trainer(**SILENT).test(task, task.data) == expected


@every_task
def test_the_tuner_predict_and_load_from_checkpoint_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = gyral.build(gyral.compose(SMALL_RUNS[name](tmp_path, monkeypatch)))
    trainer = Trainer(max_steps=2, limit_predict_batches=2, default_root_dir=tmp_path, **SILENT)
    if any(True for _ in task.parameters()):
        before = [weight.clone() for weight in task.parameters()]
        found = Tuner(trainer).lr_find(task, datamodule=task.data, num_training=16)
        assert found is not None
        assert task.lr == found.suggestion() is not None
        assert all(torch.equal(*pair) for pair in zip(before, task.parameters(), strict=True))
        trainer.fit(task, task.data)
        if not trainer.lr_scheduler_configs:
            assert trainer.optimizers[0].param_groups[0]["lr"] == task.lr
    predictions = trainer.predict(task, task.data)
    assert predictions is not None
    for batch, predicted in zip(itertools.islice(task.data.loader("test"), 2), predictions, strict=True):
        assert len(predicted) == len(task.targets(batch))
    trainer.save_checkpoint(path := tmp_path / "mine.ckpt")
    loaded = type(task).load_from_checkpoint(path, map_location="cpu")
    assert not loaded.training
    assert_same_weights(loaded, task)


def test_the_found_learning_rate_keeps_the_groups_of_the_optimizer() -> None:
    words = ("model=lru", "optimizer=adamw", "optimizer.decay=matrices", "optimizer.dynamics_lr=0.1")
    task = gyral.build(gyral.compose([*SMALL_RECALL, *words]))
    task.lr = 0.5
    groups = task.configure_optimizers().param_groups
    assert {group["lr"] for group in groups} == {0.5, 0.05}


def test_predictions_follow_the_order_of_the_batches() -> None:
    task = small()
    predictions = Trainer(max_steps=1, **SILENT).predict(task, task.data.loader("val"))
    assert predictions is not None
    task.eval()
    for batch, predicted in zip(task.data.loader("val"), predictions, strict=True):
        assert torch.equal(predicted, task.predict(batch))


def test_the_best_checkpoint_of_lightning_loads_by_its_path(tmp_path: Path) -> None:
    task = small()
    best = ModelCheckpoint(tmp_path, monitor=task.monitor, mode=task.mode)
    options = {**SILENT, "enable_checkpointing": True}
    Trainer(max_steps=4, val_check_interval=2, callbacks=[best], **options).fit(task, task.data)
    assert_same_weights(gyral.load(best.best_model_path), Task.load_from_checkpoint(best.best_model_path))
    with pytest.raises(UserError, match=r"ckpt: is a checkpoint of RecallTask, not of CopyTask$"):
        CopyTask.load_from_checkpoint(best.best_model_path)


def test_a_checkpoint_of_a_run_of_an_older_version_uses_the_configuration_of_its_directory(tmp_path: Path) -> None:
    task, path = small(), tmp_path / "run" / "checkpoints" / "best.ckpt"
    path.parent.mkdir(parents=True)
    torch.save({"state_dict": task.state_dict(), "global_step": 2, "loops": {}}, path)
    with pytest.raises(OptionError, match=r"best\.ckpt: has no configuration; the task must have been built by "):
        gyral.load(path)
    config = resolve(copy.deepcopy(composed()))
    (tmp_path / "run" / "config.yaml").write_text(OmegaConf.to_yaml(config))
    assert_same_weights(Task.load_from_checkpoint(path), task)


def write(path: Path, config: Any) -> Path:
    torch.save({"state_dict": {}, "global_step": 2, "loops": {}, "hyper_parameters": config}, path)
    return path


def changed(key: str, value: Any) -> Any:
    config = resolve(copy.deepcopy(composed()))
    OmegaConf.update(config, key, value, merge=False, force_add=True)
    return OmegaConf.to_container(config)


def deep(levels: int) -> Any:
    config: dict[str, Any] = {"task": {}}
    for _ in range(levels):
        config = {"task": config}
    return config


def inside_itself() -> Any:
    config: dict[str, Any] = {}
    config["task"] = config
    return config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (lambda: changed("model.cell", {"_target_": "builtins.exec", "_args_": [TOUCH]}), "names builtins.exec"),
        (lambda: changed("task.helper", {"_target_": "os.system", "command": f"touch {CANARY}"}), "names os.system"),
        (lambda: {"_instantiator": "os.system", "_class_path": "os.system"}, "has no section task"),
        (lambda: {"model": {"_target_": "os.system"}}, "names os.system"),
        (evaluated, "is not a checkpoint, or would execute code"),
        (inside_itself, "values, which no run writes"),
        (lambda: {"task": torch.zeros(2)}, "has no configuration"),
        (lambda: [1], "has no configuration"),
        (lambda: {}, "has no section task"),
        (lambda: deep(150), "has "),
    ],
)
def test_the_checkpoint_of_a_stranger_executes_nothing(
    config: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as raised:
        Task.load_from_checkpoint(write(tmp_path / "theirs.ckpt", config()))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / CANARY).exists()


def test_a_value_in_a_checkpoint_is_no_interpolation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "1")
    with pytest.raises(OptionError, match=r"task\.length=.*oc\.env"):
        Task.load_from_checkpoint(write(tmp_path / "theirs.ckpt", changed("task.length", "$\\{oc.env:SECRET}")))


def test_a_trainer_that_logs_nothing_trains() -> None:
    task = small()
    Trainer(max_steps=2, log_every_n_steps=0, **SILENT).fit(task, task.data)
    assert task.global_step == 2


@pytest.mark.filterwarnings("ignore:When using `Trainer.accumulate_grad_batches")
def test_an_accumulation_that_changes_during_training_is_one_line() -> None:
    task = small()
    trainer = Trainer(max_steps=4, callbacks=[GradientAccumulationScheduler({0: 2})], **SILENT)
    with pytest.raises(UserError, match=r"^the training stream has ended after 2 of 4 steps; set Trainer\(accumulate_"):
        trainer.fit(task, task.data)
