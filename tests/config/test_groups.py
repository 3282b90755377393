"""Choices of the groups: Gyral's own, the cells of networks with several, and those in the user's folder conf/."""

import pickle
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gyral.config.groups import choices, find_config, list_choices
from gyral.config.own_modules import add_user_modules
from hydra_plugins.gyral import Choices
from tests.helpers.running import ROOT, compose_config, invoke


def test_an_unknown_cell_lists_the_cells() -> None:
    error = invoke("model=fs_lstm", "cell@model.cell.slow=nope", "task=copy").error
    assert error == f"cell=nope: must be one of {', '.join(choices('cell'))}"


def test_private_files_are_not_choices_and_each_folder_is_one_line() -> None:
    assert not [name for name in choices("model") if name.startswith("_")]
    lines = list_choices("experiment").splitlines()
    assert all(line.startswith("experiment: ") and line.endswith("}") for line in lines)
    listed = [
        f"{folder}{name}" for folder, names in (line[12:-1].split("{") for line in lines) for name in names.split(",")
    ]
    assert listed == choices("experiment")
    assert list_choices("optimizer") == "optimizer: adagrad, adam, adamw, rmsprop, sgd"


def test_jobs_of_other_processes_get_the_choices() -> None:
    choices = Choices("gyral", "gyral://conf")
    make, given = choices.__reduce__()  # Hydra has loaded the class once more, so that `pickle` refuses this one
    copy = make(*pickle.loads(pickle.dumps(given)))
    assert (copy.provider, copy.full_path()) == (choices.provider, choices.full_path())
    assert (copy.is_group("model"), copy.is_config("model/nope")) == (True, False)


CELL = """
from gyral.cells.rnn import RNNCell

class MyCell(RNNCell):
    pass
"""
MODEL = """
defaults: [_base, _self_]
cell:
  _target_: my_cell.MyCell
  hidden_size: 8
"""
TASK = """
from gyral.tasks.copy import CopyTask

class MyTask(CopyTask):
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with a cell and a task of a user, of two files each."""
    files = {
        "my_cell.py": CELL,
        "conf/model/mine.yaml": MODEL,
        "my_task.py": TASK,
        "conf/task/mine.yaml": "defaults: [copy, _self_]\n_target_: my_task.MyTask\n",
        "conf/model/my_rum.yaml": "defaults: [rum, _self_]\ncell: {eta: 0.5}\n",
        "conf/train.yaml": "never: read\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_users_folder_adds_choices(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "mine" not in choices("model")
    monkeypatch.chdir(project)
    assert {"mine", "rum"} < set(choices("model"))
    assert find_config("task", "mine") == project / "conf" / "task" / "mine.yaml"
    assert find_config("task", "copy").parts[-3:] == ("conf", "task", "copy.yaml")


def test_a_model_of_the_user_may_be_a_variant_of_another(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    printed = OmegaConf.create(invoke("model=my_rum", "--cfg", "job", "--package", "model").out)
    assert printed == OmegaConf.merge(compose_config("model=rum").model, {"cell": {"eta": 0.5}})


def test_a_cell_and_a_task_of_the_user_train(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(sys, "path", [*sys.path])
    arguments = ("trainer.max_steps=2", "trainer.accelerator=cpu", "task.batch_size=4", "task.train_size=8")
    outcome = invoke("model=mine", "task=mine", "logger=none", "threads=1", *arguments)
    assert outcome.status == 0, outcome.err
    (run,) = (project / "outputs" / "mine" / "mine").iterdir()
    assert (run / "DONE").is_file()
    config = (run / "config.yaml").read_text()
    assert "my_cell.MyCell" in config
    assert "my_task.MyTask" in config


def test_modules_beside_the_code_are_importable_in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m src.train` takes the current directory from the front of the path, as it does elsewhere."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(ROOT))])
    add_user_modules()
    assert sys.path[-1] == str(ROOT)
