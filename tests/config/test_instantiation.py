"""Objects from sections of the configuration; errors name the option by its whole key, as an object."""

import re
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from gyral.cells.rum import RUMCell
from gyral.config.instantiation import check_section, check_sections, make
from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.errors import OptionError, UserError
from gyral.core.signatures import parameters_of
from gyral.tasks.copy import CopyTask
from gyral.training.build import build_task
from gyral.training.callbacks.statistics import Statistics
from tests.helpers.calls import calls_of
from tests.helpers.running import compose_config


class Inner:
    def __init__(self, hidden_size: int, rate: float = 0.5) -> None:
        self.hidden_size = check_integer("hidden_size", hidden_size)
        self.rate = check_real("rate", rate, below=1)


class Outer:
    def __init__(
        self, first: Callable[..., Inner], second: Callable[..., Inner], mode: str = "a", size: int = 3, **_: Any
    ) -> None:
        self.cells = [first(), second()]
        if mode not in ("a", "b"):
            raise ValueError("cannot do that")  # without the names of option and value
        if size == 10**13:
            raise RuntimeError("cannot allocate memory for 10000000000000\nwith a traceback")
        if size == 7:
            raise KeyError("seven")
        if size == 99:
            raise TypeError("never works with these cells")
        check_integer("second.hidden_size", self.cells[1].hidden_size, maximum=100)


HERE = "tests.config.test_instantiation"
INNER = {"_target_": f"{HERE}.Inner", "_partial_": True, "hidden_size": 4, "rate": 0.5}
CONFIG = {"net": {"_target_": f"{HERE}.Outer", "first": INNER, "second": INNER}}


def build(**options: Any) -> Any:
    config = OmegaConf.create(CONFIG)
    for key, value in options.items():
        OmegaConf.update(config, key, value, force_add=True)
    return make(config, "net")


def test_sections_become_factories_of_their_targets() -> None:
    outer = build(**{"net.second.hidden_size": 7})
    assert [cell.hidden_size for cell in outer.cells] == [4, 7]
    factory = make(OmegaConf.create({"optimizer": INNER}), "optimizer")
    assert isinstance(factory, partial)
    assert factory.keywords == {"hidden_size": 4, "rate": 0.5}
    assert factory(rate=0.25).rate == 0.25
    assert make(OmegaConf.create({"net": None}), "net") is None


@pytest.mark.parametrize("key", ["optimizer", "scheduler", "model.cell"])
def test_a_section_of_an_object_that_is_made_later_needs_no_partial(key: str) -> None:
    config: Any = OmegaConf.create({})
    OmegaConf.update(config, key, {name: value for name, value in INNER.items() if name != "_partial_"})
    assert isinstance(make(config, key), partial)


@pytest.mark.parametrize("key", ["task", "model", "trainer", "callbacks.own", "logger.own"])
def test_a_section_of_an_object_that_is_made_at_once_must_not_be_partial(key: str) -> None:
    config: Any = OmegaConf.create({})
    OmegaConf.update(config, key, INNER)
    with pytest.raises(OptionError, match=rf"^{key}\._partial_=true: must be left out: the object is made at once$"):
        make(config, key)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("net.second.hidden_size", 0, "must be an integer ≥ 1"),  # not `first`, which has the same options
        ("net.first.rate", 1.0, "must be a finite number < 1"),
        ("net.second.rate", float("nan"), "must be a finite number"),
        ("net.second.rate", "abc", "must be a valid number"),
        ("net.second.hidden_size", 1.5, "must be a valid integer, got a number with a fractional part"),
        ("net.second.hidden_size", 101, "must be an integer from 1 to 100"),  # refused by the target that contains it
        ("net.first.speed", 3, "no such option; allowed: hidden_size, rate"),
        ("net.first.rates", 3, "no such option; did you mean rate? allowed: hidden_size, rate"),
        ("net.first._target_", 3, "must be the dotted name of a class or function"),
        ("net.first._target_", "math.pi", "must be the dotted name of a class or function"),
        (
            "net.first._target_",
            "gyral.cells.rum.RUMCel",
            "did you mean gyral.cells.rum.RUMCell? cannot be imported: gyral.cells.rum has no RUMCel",
        ),
        ("net.first._target_", "no_such_module.Cell", "cannot be imported: No module named 'no_such_module'"),
    ],
)
def test_errors_are_objects_with_the_whole_key(key: str, value: Any, reason: str) -> None:
    with pytest.raises(OptionError) as raised:
        build(**{key: value})
    error = raised.value
    assert (error.option, str(error.value), error.reason) == (key, str(value), reason)
    assert str(error) == f"{key}={value}: {reason}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"net.mode": "c"}, "net: cannot do that"),
        ({"net.size": 99}, "net: never works with these cells"),
        ({"net.size": 10**13}, "net: out of memory: cannot allocate memory for 10000000000000"),
        ({"net.size": 7}, "net: tests/config/test_instantiation.py:41: KeyError: 'seven'"),
    ],
)
def test_an_error_without_an_option_names_the_section(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        build(**options)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("task", None, "task=null: must be a section; choose one by task=<name>"),
        ("task", 3, "task=3: must be a section"),
        ("model", {"a": 1}, "model._target_=null: must be the dotted name of a class or function"),
        ("scheduler", 3, "scheduler=3: must be a section"),
        ("callbacks", 3, "callbacks=3: must hold sections; choose some by callbacks=<name>"),
        ("callbacks.guard", None, "callbacks.guard=null: must be a section; write ~callbacks.guard to leave it out"),
        ("logger.own", {"a": 1}, "logger.own._target_=null: must be the dotted name of a class or function"),
    ],
)
def test_missing_sections_are_named(key: str, value: Any, message: str) -> None:
    section = {"_target_": f"{HERE}.Inner"}
    config = OmegaConf.create(dict.fromkeys(("task", "model", "optimizer", "trainer"), section))
    check_sections(config)
    OmegaConf.update(config, key, value, merge=False)
    with pytest.raises(OptionError) as raised:
        check_sections(config)
    assert str(raised.value) == message


def test_options_that_a_class_passes_to_its_base_are_known() -> None:
    parameters = parameters_of(CopyTask)
    assert parameters is not None
    assert {"delay", "monitor", "overfit"} <= set(parameters)
    assert parameters["delay"].default == 10  # an option of the data
    assert "options" not in parameters
    assert parameters_of(Statistics) == {}
    assert parameters_of(Outer) == dict(signature(Outer).parameters)  # of another package: options may be anything


def test_checking_a_section_builds_nothing() -> None:
    config = OmegaConf.create({"callbacks": {"guard": {**INNER, "hidden_size": -5}}})
    check_section(config.callbacks, "callbacks")  # -5 is an integer; only the constructor refuses it
    config.callbacks.guard.hidden_size = "many"
    with pytest.raises(OptionError, match=r"^callbacks\.guard\.hidden_size=many: must be a valid integer"):
        check_section(config.callbacks, "callbacks")


def test_a_cell_is_made_with_few_calls() -> None:
    config = compose_config("model=rum", "model.cell.lambd=1", "task=copy")
    calls = calls_of(lambda: build_task(config), until=RUMCell.__post_init__)
    assert calls[-1] == "RUMCell.__post_init__"
    assert len(calls) <= 200  # with the checks and attributes of 13 options; 524 with comprehensions at commit 2bd73b6
    assert max(map(calls.count, ("make", "_find_target", "parameters_of"))) == 4  # optimizer, task, model and cell


def test_paths_begin_at_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    section = {"_target_": "builtins.dict", "a": "~/b", "c": ["~/d", "~x"], "e": "a~", "f": {"g": "~"}}
    found = make(OmegaConf.create({"x": section}), "x")
    assert found == {"a": f"{tmp_path}/b", "c": [f"{tmp_path}/d", "~x"], "e": "a~", "f": {"g": str(tmp_path)}}


class Nullable:
    def __init__(
        self,
        size: int | None = None,
        kind: str | None = None,
        rate: "float | None" = None,
        name: str = "",
        on: bool = True,
    ) -> None:
        if size is not None:
            check_integer("size", size)
        if kind is not None:
            check_choice("kind", kind, ("prenorm", "swiglu"))
        if rate is not None:
            check_real("rate", rate, maximum=1)
        check_choice("name", name, ("", "a"))


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("size", 0, "must be null or an integer ≥ 1"),
        ("size", "many", "must be null or a valid integer"),
        ("kind", "prenom", "did you mean prenorm? must be null or one of prenorm, swiglu"),
        ("kind", 3, "must be null or a valid string"),
        ("rate", 2.0, "must be null or a finite number ≤ 1"),
        ("rate", "fast", "must be null or a valid number"),
        ("name", "b", "must be one of , a"),
        ("on", 3, "must be a valid boolean, unable to interpret input"),
    ],
)
def test_the_line_says_where_null_is_allowed(option: str, value: Any, said: str) -> None:
    config = OmegaConf.create({"model": {"_target_": f"{HERE}.Nullable", option: value}})
    with pytest.raises(OptionError) as raised:
        make(config, "model")
    assert raised.value.reason == said


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("optmizer", {"lr": 1}, "optmizer={'lr': 1}: no such option; did you mean optimizer? allowed: task, model, "),
        ("sed", 3, "sed=3: no such option; did you mean seed? allowed: "),
        ("lr", 0.1, "lr=0.1: no such option; allowed: "),
        ("experiment", {}, "experiment={}: no such option; allowed: "),
        ("max_steps", 5, "max_steps=5: no such option; allowed: "),
    ],
)
def test_a_key_of_a_configuration_that_nothing_reads_is_refused(key: str, value: Any, said: str) -> None:
    section = {"_target_": f"{HERE}.Inner"}
    sections = dict.fromkeys(("task", "model", "optimizer", "trainer"), section)
    check_sections(OmegaConf.create({**sections, "seed": 1}))
    with pytest.raises(OptionError, match=rf"^{re.escape(said)}"):
        check_sections(OmegaConf.create({**sections, key: value}))
