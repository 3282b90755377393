"""Configurations, training and runs from Python: `gyral.compose`, `build`, `fit`, `load` and `list_runs`."""

import copy
import logging
import os
import sys
from pathlib import Path

import hydra
import pytest
import torch
from hydra import version
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from pytorch_lightning import Trainer

import gyral
from gyral.config.composition import overrides_of
from gyral.core.errors import UserError
from gyral.runs.records import read_run
from gyral.runs.run_record import RunRecord
from tests.helpers.running import SMALL_RECALL, assert_same_run, compose_config, invoke
from tests.helpers.written import TABLE1, write_run

SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
}


@pytest.fixture(scope="module")
def config() -> DictConfig:
    """A small run, with an option that was changed after composing."""
    config = gyral.compose(["model=gru", "seed=3", *SMALL_RECALL])
    config.model.cell.hidden_size = 9
    return config


@pytest.fixture(scope="module")
def folder(config: DictConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained from Python, and one that failed."""
    path = tmp_path_factory.mktemp("runs")
    gyral.fit(config, path / "wide")
    failed = path / "failed"
    failed.mkdir()
    for name in ("config.yaml", "measures.json"):
        (failed / name).write_text((path / "wide" / name).read_text())
    (failed / "overrides.yaml").write_text("[model=gru]\n")
    (failed / "provenance.json").write_text("{}")
    (failed / "FAILED").write_text("ValueError: no <memory>\n")
    return path


# ---------------------------------------------------------------- compose and build


def test_a_composed_configuration_equals_that_of_the_command() -> None:
    overrides = ("model=rum", "task=recall", "model.cell.lambd=1")
    config = gyral.compose(overrides)
    assert OmegaConf.to_container(config, resolve=True) == OmegaConf.to_container(compose_config(*overrides))
    config.seed = 7
    assert config.task.data_seed == 7


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["model=rumm"], "model=rumm: "),
        (["task.lenght=3", "task=recall"], "task.lenght: no such option; "),
        (["model"], "model: cannot be parsed; "),
        ("model=rum", 'overrides: must be a list of texts, such as ["model=rum", "task=copy"], not \'model=rum\''),
    ],
)
def test_wrong_overrides_raise_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError) as raised:
        gyral.compose(overrides)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_the_users_hydra_state_does_not_change(config: DictConfig, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("x: 1\n")
    arguments, handlers, level = sys.argv, logging.getLogger().handlers[:], logging.getLogger().level
    with hydra.initialize_config_dir(str(tmp_path), version_base="1.2"):
        gyral.fit(config, folder / "wide")  # it is DONE
        with pytest.raises(UserError, match=r"^model=no: "):
            gyral.compose(["model=no"])
        assert hydra.compose("own") == {"x": 1}
        assert str(version.getbase()) == "1.2"
    assert not GlobalHydra.instance().is_initialized()
    assert not HydraConfig.initialized()
    assert (sys.argv, logging.getLogger().handlers, logging.getLogger().level) == (arguments, handlers, level)


def test_the_folder_conf_of_the_current_directory_adds_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "own_gru.yaml").write_text("defaults: [gru, _self_]\nnum_layers: 2\n")
    monkeypatch.chdir(tmp_path)
    assert gyral.compose(["model=own_gru"]).model.num_layers == 2


def test_lightning_trains_and_tests_a_task_twice(config: DictConfig) -> None:
    task = gyral.build(config)
    first = [weight.clone() for weight in task.parameters()]
    assert all(torch.equal(*pair) for pair in zip(first, gyral.build(config).parameters(), strict=True))
    for _ in range(2):
        trainer = Trainer(max_steps=2, val_check_interval=1, **SILENT)
        trainer.fit(task, task.data)
        (metrics,) = trainer.test(task, task.data, verbose=False)
        assert {"test/loss", "test/accuracy", "test/baseline"} <= set(metrics)
    assert not torch.equal(first[0], next(iter(task.parameters())))
    with pytest.raises(UserError, match=r"^Trainer\(max_steps=-1\): must be set; "):
        Trainer(max_epochs=1, **SILENT).fit(task, task.data)


def test_a_wrong_configuration_type_is_one_line() -> None:
    for function in (gyral.build, gyral.fit):
        with pytest.raises(UserError, match=r"^config: must be what gyral\.compose returns, not list$"):
            function(["model=rum"])


# ---------------------------------------------------------------- train


def test_a_run_from_python_equals_that_of_the_command(config: DictConfig, folder: Path, tmp_path: Path) -> None:
    words = ["model=gru", "seed=3", *SMALL_RECALL, "model.cell.hidden_size=9"]
    assert invoke(*words, f"hydra.run.dir={tmp_path / 'wide'}", plot=True).status == 0
    first, second = folder / "wide", tmp_path / "wide"
    assert_same_run(first, second)
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}
    assert "GRUCell runs on the " in (first / "train.log").read_text()
    assert OmegaConf.load(first / "overrides.yaml") == [*words] == OmegaConf.load(second / "overrides.yaml")
    command = read_run(first).provenance.command
    assert command.startswith("gyral train model=gru seed=3 ")
    assert command.endswith(f" model.cell.hidden_size=9 hydra.run.dir={first}")
    for copied in (config.copy(), copy.deepcopy(config)):
        assert overrides_of(copied) == overrides_of(config) != []


def test_errors_of_training_leave_nothing_behind(config: DictConfig, folder: Path, tmp_path: Path) -> None:
    wrong = copy.deepcopy(config)
    wrong.optimizer.lr = -1
    with pytest.raises(UserError, match=r"^optimizer\.lr=-1: "):
        gyral.fit(wrong, tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match=r"holds a run of another configuration \(optimizer\.lr is "):
        gyral.fit(wrong, folder / "wide")
    wrong.resume = "nowhere"
    with pytest.raises(UserError, match=r"^resume=nowhere: must be a run directory"):
        gyral.fit(wrong)


def test_a_record_is_a_path_to_its_directory(folder: Path) -> None:
    run = read_run(folder / "wide")
    task = gyral.load(run)
    batch = next(iter(task.data.loader("test")))
    assert not task.training
    assert task.predict(batch).shape == batch.targets.shape
    assert repr(run).startswith(f"<run {folder / 'wide'}: GRU on recall, DONE, test/loss = ")
    assert run.directory == folder / "wide" == Path(run)


def test_a_record_has_the_curves_of_its_run(folder: Path) -> None:
    run, failed = read_run(folder / "wide"), read_run(folder / "failed")
    assert isinstance(run, RunRecord)
    assert run.curve("val/loss")[0] == [8, 16, 24]
    with pytest.raises(UserError, match=r"metrics\.csv: has no metric val/bits; it has .*val/loss, "):
        run.curve("val/bits")
    with pytest.raises(UserError, match=r"metrics\.csv: has no metric val/loss; it has none yet$"):
        failed.curve("val/loss")


# ---------------------------------------------------------------- runs


def test_the_numbers_of_runs_are_a_tidy_frame(folder: Path) -> None:
    runs = gyral.list_runs(folder, options=["model.cell.hidden_size", "task.delay"])
    names = ["run", "task", "cell", "row", "column", "seed", "state", "metric", "value", "unit", "published"]
    assert [*runs.columns[:11]] == names
    [failed] = runs[runs.run == str(folder / "failed")].itertuples()
    assert (failed.state, failed.task, failed.cell, failed.row) == ("FAILED", "recall", "GRU", "GRU")
    assert runs[runs.state == "FAILED"][["metric", "value"]].isna().all(axis=None)
    done = runs[runs.state == "DONE"].set_index("metric")
    results = read_run(folder / "wide").metrics
    assert {*results, "test/loss_ratio"} == {*done.index}
    assert {*done.unit[[name for name in done.index if "accuracy" in name]]} == {"%"}
    assert done.value["test/accuracy"] == pytest.approx(100 * results["test/accuracy"])
    assert done.value["test/loss_ratio"] == pytest.approx(results["test/loss"] / results["test/baseline"])
    assert {*done.seed} == {3}
    assert {*done["model.cell.hidden_size"]} == {9}
    assert done["task.delay"].isna().all()
    task = gyral.load(done.run["steps"])
    with pytest.raises(UserError, match=r"^data=\[1, 2\]: RecallTask cannot predict for your own inputs$"):
        task.predict([1, 2])


def test_published_values_are_in_the_frame(tmp_path: Path) -> None:
    for length in (30, 50):
        write_run(tmp_path, f"{TABLE1}/gru", length=length, accuracy=0.2)
    runs = gyral.list_runs(tmp_path)
    found = runs[runs.metric == "test/accuracy"][["row", "column", "value", "published"]]
    assert found.values.tolist() == [["GRU", "30", 20, 21.5], ["GRU", "50", 20, 17.6]]


def test_a_directory_without_runs_is_an_empty_frame(tmp_path: Path) -> None:
    assert gyral.list_runs(tmp_path).empty
    with pytest.raises(UserError, match=r"nowhere: no such directory$"):
        gyral.list_runs(tmp_path / "nowhere")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "overrides.yaml").write_text("[]\n")
    reason = r"broken: cannot be read: config\.yaml: cannot be read \(No such file or directory\)$"
    with pytest.warns(UserWarning, match=reason):
        assert gyral.list_runs(tmp_path).empty
