"""`debug=small`: the tiny example of a task, as the class of its data names it, and a small model."""

import re
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf

from gyral.config import signatures
from gyral.config.groups import target_of
from gyral.config.plain import flatten
from gyral.core.errors import UserError
from gyral.tasks.data_module import DrawnData
from tests.helpers.found import at_least
from tests.helpers.running import (
    absent_corpora,
    build_task,
    choices,
    compose_config,
    invoke,
    model_for,
    read_choice,
    task_class,
)
from tests.helpers.slices import offered_to

TASKS = at_least(36, choices("task"))


def small_of(group: str, name: str) -> dict[str, object]:
    """Return the options of the tiny example of a choice by their dotted names."""
    return {key: value for key, value in flatten(signatures.small_options(target_of(group, name))) if key}


def found_in(section: DictConfig, names: object) -> dict[str, object]:
    """Return the values that options have in a section of a configuration."""
    plain = dict(flatten(OmegaConf.to_container(section)))
    return {name: plain[name] for name in names}


@pytest.mark.slow
def test_every_model_names_options_that_it_has() -> None:  # of tasks, their contract checks it
    named = {model: small_of("model", model) for model in choices("model")}
    at_least(60, filter(None, named.values()))
    unknown = {model: small.keys() - dict(flatten(read_choice("model", model))) for model, small in named.items()}
    assert {model: names for model, names in unknown.items() if names} == {}


@pytest.mark.parametrize("task", [pytest.param(task, marks=pytest.mark.one_of(10)) for task in TASKS])
def test_a_run_of_every_task_ends_within_seconds(task: str, tmp_path: Path) -> None:
    target = target_of("task", task)
    names = dict(flatten(read_choice("task", task)))
    given = {name: value for name, value in offered_to(target, "OPTIONS", task).items() if name in names}
    words = (f"task={task}", "debug=small", model_for(task, "rum", 16)[0], "threads=1", "trainer.accelerator=cpu")
    files = (f"task.{name}={value!r}" for name, value in given.items())
    outcome = invoke(*words, *files, f"hydra.run.dir={tmp_path}/run", f"paths.data_dir={tmp_path}")
    if re.search(absent_corpora(), outcome.err):
        pytest.skip("the corpus is absent")
    assert outcome.status == 0, outcome.err
    config = OmegaConf.load(tmp_path / "run" / "config.yaml")
    wanted = {name: value for name, value in small_of("task", task).items() if name not in given}
    assert found_in(config.task, wanted) == wanted
    assert config.trainer.max_steps == 20
    assert (tmp_path / "run" / "DONE").is_file()


def test_what_the_command_line_says_has_priority_and_what_a_row_of_a_table_says_does_not() -> None:
    row = "experiment=rum_paper/table1/gru"
    config = compose_config("debug=small", row, "task.batch_size=3", "model.cell.hidden_size=5", "trainer.max_steps=2")
    assert compose_config(row).task.length != 6
    assert found_in(config.task, ("length", "batch_size")) == {"length": 6, "batch_size": 3}
    assert (config.model.cell.hidden_size, config.model.num_layers, config.trainer.max_steps) == (5, 1, 2)
    assert compose_config("debug=overfit", "task=copy").task.delay == compose_config("task=copy").task.delay


@pytest.mark.slow
def test_a_sweep_has_the_tiny_example_of_each_of_its_tasks(tmp_path: Path) -> None:
    words = ("-m", "debug=small", "task=copy,recall", "model=gru", "threads=1", "trainer.accelerator=cpu")
    outcome = invoke(*words, "trainer.max_steps=2", f"hydra.sweep.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    files = sorted(tmp_path.rglob("config.yaml"))
    assert [OmegaConf.load(file).task.batch_size for file in files] == [8, 8]
    assert [OmegaConf.load(file).model.cell.hidden_size for file in files] == [16, 16]


def test_a_class_adds_to_the_options_of_its_base_and_of_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_lengths.py").write_text(
        "from gyral.tasks.data_module import DrawnData\n"
        "class Data(DrawnData):\n    small = {'length': 6, 'batch_size': 2}\n"
        "class Other(Data):\n    small: dict = {'width': 3}\n"
        "class Task(Generic[Other], Mixin):\n    data_class = Other\n    small = {'length': 7}\n"
        "class Wrong(Data):\n    small = dict(length=6)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    drawn = {name: value for name, value in DrawnData.small.items() if name != "batch_size"}
    assert signatures.small_options("own_lengths.Data") == {**drawn, "length": 6, "batch_size": 2}
    assert signatures.small_options("own_lengths.Task") == {**drawn, "length": 7, "batch_size": 2, "width": 3}
    assert signatures.small_options("own_lengths.Absent") == signatures.small_options("no_such_module.Task") == {}
    with pytest.raises(
        UserError, match=r"own_lengths\.py:10: Wrong\.small: must be written out as a dictionary of opt"
    ):
        signatures.small_options("own_lengths.Wrong")


@pytest.mark.slow
@pytest.mark.parametrize("cell", choices("cell"))
def test_every_cell_has_the_size_of_the_small_model(cell: str) -> None:
    built = build_task("debug=small", "task=copy", f"model={cell}")
    batch = next(iter(built.data.loader("val")))
    assert built(batch).shape == (*batch.targets.shape, 9)
    assert task_class("copy") is type(built)
