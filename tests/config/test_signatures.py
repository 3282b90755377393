"""Options of constructors: the defaults of a class are those of the command line, and of the runs that are saved."""

import inspect
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

from gyral.config.groups import choices
from gyral.config.signatures import annotations_of, constructor_defaults, takes_text, type_of
from gyral.core.errors import OptionError
from gyral.core.options import checks_of, declares_options
from tests.helpers.found import at_least
from tests.helpers.running import build_task, compose_choices, compose_config

CELL = """
from gyral.cells.gru import GRUCell

class GatedCell(GRUCell):
    def __init__(self, input_size, hidden_size, *, zoneout=0.0, made=dict(), sizes=(1, 2)):
        super().__init__(input_size, hidden_size, zoneout=zoneout)

class OtherCell(GatedCell):
    pass
"""
TASK = """
from dataclasses import field
from typing import Annotated, ClassVar
from gyral.core.options import OneOf
from gyral.tasks.copy import CopyData, CopyTask

class OwnData(CopyData):
    def __init__(self, *, delay=7, batch_size=3, data_seed=0):
        super().__init__(delay=delay, batch_size=batch_size, train_size=9, data_seed=data_seed)

class OwnTask(CopyTask):
    data_class = OwnData

class OtherTask(OwnTask):
    pass

class AnnotatedData(CopyData):
    path: Annotated[str, OneOf(("a", "b"))] | None = None
    kind: ClassVar[int] = 3
    recalled = 2
    made: int = field(init=False, default=3)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a module of cells and one of tasks, and a cell and two tasks."""
    (tmp_path / "conf" / "cell").mkdir(parents=True)
    (tmp_path / "conf" / "task").mkdir()
    (tmp_path / "conf" / "task" / "own.yaml").write_text("# Own\n_target_: own_task.OwnTask\nbatch_size: 4\n")
    (tmp_path / "conf" / "task" / "other.yaml").write_text("defaults: [own, _self_]\n_target_: own_task.OtherTask\n")
    (tmp_path / "own_task.py").write_text(TASK)
    (tmp_path / "conf" / "cell" / "gated.yaml").write_text("# Own\n_target_: own_gated.OtherCell\n")
    (tmp_path / "own_gated.py").write_text(CELL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_cell_has_the_options_of_its_constructor_with_their_defaults() -> None:
    for cell in at_least(45, choices("cell")):
        target = compose_choices("cell")[cell]["_target_"]
        parameters = inspect.signature(get_class(target)).parameters.values()
        expected = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
        assert constructor_defaults(target) == expected, cell


def test_a_class_without_a_constructor_has_that_of_its_base(project: Path) -> None:
    assert constructor_defaults("own_gated.OtherCell") == {"zoneout": 0.0, "sizes": [1, 2]}
    cell = compose_config("model=gated", "model.cell.zoneout=0.25").model.cell
    assert OmegaConf.to_container(cell) == {
        "_target_": "own_gated.OtherCell",
        "_partial_": True,
        "hidden_size": 100,
        "zoneout": 0.25,
        "sizes": [1, 2],
    }


def test_a_task_has_the_options_of_its_constructor_and_of_its_data_with_their_defaults() -> None:
    for task in at_least(36, choices("task")):
        config = compose_choices("task")[task]
        found = get_class(config["_target_"])
        of_data = inspect.signature(getattr(found, "data_class", found)).parameters
        parameters = (of_data | inspect.signature(found).parameters).values()
        defaults = {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}
        assert set(defaults) <= set(config), task
        read = constructor_defaults(config["_target_"])
        assert set(defaults) - set(read) <= {"vocabulary_size"}, f"{task}: the default is not a literal"
        assert OmegaConf.create(read) == OmegaConf.create({name: defaults[name] for name in read}), task


def test_a_task_of_the_user_has_the_options_of_its_data(project: Path) -> None:
    assert constructor_defaults("own_task.OtherTask") == {"delay": 7, "batch_size": 3, "data_seed": 0}
    task = compose_config("task=own").task
    assert task == {"_target_": "own_task.OwnTask", "delay": 7, "batch_size": 4, "data_seed": 0}
    assert build_task("task=own", "model=gru", delay=5).data.delay == 5
    with pytest.raises(OptionError, match=r"^task\.delai=3: no such option; did you mean delay\? allowed: delay, "):
        build_task("task=own", "model=gru", "+task.delai=3")


def test_annotated_attributes_are_options(project: Path) -> None:
    defaults = constructor_defaults("own_task.AnnotatedData")
    assert list(defaults)[:5] == ["path", "delay", "symbols", "recalled", "train_size"]
    assert (defaults["path"], defaults["recalled"], defaults["train_size"]) == (None, 2, 50_000)
    assert (takes_text("own_task.AnnotatedData", "path"), takes_text("own_task.AnnotatedData", "delay")) == (
        True,
        False,
    )


def test_defaults_of_a_constructor_do_not_replace_what_another_choice_sets(project: Path) -> None:
    task = compose_config("task=other").task
    assert task == {"_target_": "own_task.OtherTask", "delay": 7, "batch_size": 4, "data_seed": 0}


@pytest.mark.parametrize(
    "target", ["torch.nn.GRU", "no_module.Cell", "own_gated.Missing", "gyral.cells.Missing", "Cell"]
)
def test_other_classes_have_no_options(target: str, project: Path) -> None:
    assert constructor_defaults(target) == {}


def test_the_text_of_a_module_does_not_execute(project: Path) -> None:
    (project / "own_gated.py").write_text(f"open('executed', 'w')\n{CELL}")
    assert constructor_defaults("own_gated.GatedCell")
    assert not (project / "executed").exists()
    (project / "own_gated.py").write_text("def broken(:")
    assert constructor_defaults("own_gated.GatedCell") == {}


@pytest.mark.parametrize("group", ["cell", "task"])
def test_the_text_of_an_annotation_has_the_range_of_the_option_or_none(group: str) -> None:
    for target in sorted({choice["_target_"] for choice in compose_choices(group).values()}):
        options = get_class(target)
        options = getattr(options, "data_class", options)
        if declares_options(options):
            read = annotations_of(f"{options.__module__}.{options.__name__}")
            ranges = {
                name: repr(checks_of(type_of(text))[1]) for name, text in read.items() if name in options.__checks__
            }
            known = {name: repr(checks) for name, (_, checks) in options.__checks__.items()}
            assert {name: found for name, found in ranges.items() if found not in ("[]", known[name])} == {}, target
