"""Texts of a stranger's run that OmegaConf would evaluate: nothing is, and every command says so in one line.

Every key of a saved configuration gets each of `FORMS`, and every command that reads a run is given the run.
"""

import functools
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

import gyral
from gyral.core.errors import UserError
from gyral.runs.directory import resolve
from gyral.runs.saved_files import read_config
from tests.faults import forks
from tests.faults.hostile import CANARY, COMMAND
from tests.faults.small_runs import SMALL_RUNS
from tests.helpers import killing
from tests.helpers.attacks import Attack
from tests.helpers.composing import each_once
from tests.helpers.running import ENTRIES, SMALL_COPY, assert_same_run, compose_config, invoke

SECRET = "4f1c9e27ab"  # the value of an environment variable, which no command may read for the run
CREATES = f"${{oc.create:{{_target_:torch.utils.collect_env.run,command:'{COMMAND}'}}}}"
READS = "${oc.env:GYRAL_SECRET}"
FORMS: dict[str, Callable[[Any], Any]] = {
    **{f"oc.create after {count} backslashes": lambda _, count=count: "\\" * count + CREATES for count in range(5)},
    "oc.env": lambda _: READS,
    "oc.env after a backslash in text": lambda _: f"a \\{READS}",
    "oc.select": lambda _: "${oc.select:seed}",
    "a resolver of the project": lambda _: "${run_directory:null,x}",
    "nested": lambda _: "${oc.env:${oc.decode:GYRAL_SECRET}}",
    "a key": lambda value: {READS: value},
    "in a list": lambda value: [value, CREATES],
}
COMMANDS: dict[str, tuple[str, ...]] = {
    "resume": ("train", "resume=run"),
    "the same directory": ("train", *SMALL_COPY, "model=gru", "hydra.run.dir=run"),
    "evaluate": ("evaluate", "run=run"),
    "generate": ("generate", "run=run"),
    "predict": ("predict", "run=run", "data=run/config.yaml"),
    "figure": ("report", "figure=loss_line", "run=run"),
    "table": ("report", "sweep=."),
    "load": (),
    "list_runs": (),
}
TABLES = ("table", "list_runs")  # they show the other runs and name this one
RUNS = ("copy", "text_file", "summarization_jsonl")


def places(config: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value of a configuration, sections included."""
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(config: Any, path: tuple[Any, ...], form: Callable[[Any], Any]) -> Any:
    """Return a copy of a configuration with one value replaced."""
    if not path:
        return form(config)
    inner = changed(config[path[0]], path[1:], form)
    if isinstance(config, dict):
        return {**config, path[0]: inner}
    return [*config[: path[0]], inner, *config[path[0] + 1 :]]


@pytest.fixture(scope="session")
def configurations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The saved configurations of small runs by task, as plain values."""
    folder, found = tmp_path_factory.mktemp("inputs"), {}
    with pytest.MonkeyPatch.context() as patch:
        for task in RUNS:
            if task in SMALL_RUNS:  # the folder of an application may be removed
                config = compose_config(*SMALL_RUNS[task](folder, patch))
                found[task] = OmegaConf.to_container(resolve(config), resolve=True)
    return found


def write_config_file(directory: Path, config: Any) -> None:
    (directory / "config.yaml").write_text(yaml.dump(config, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))


def write_run(directory: Path, config: Any) -> None:
    directory.mkdir()
    write_config_file(directory, config)
    (directory / "overrides.yaml").write_text("- seed=1\n")
    (directory / "provenance.json").write_text("{}")


def use_all() -> None:
    """Use the run in the working directory by all commands, and print how each ended."""
    for name, words in COMMANDS.items():
        print(f"== {name}", file=sys.stderr, flush=True)
        try:
            if name == "load":
                gyral.load(Path("run"))
            elif name == "list_runs":
                with warnings.catch_warnings(record=True, action="always") as notes:
                    frame = gyral.list_runs(".")
                print(frame, *(note.message for note in notes), sep="\n", file=sys.stderr)
            else:
                sys.argv = [f"gyral/{words[0]}.py", *words[1:]]
                ENTRIES[words[0]]()
        except SystemExit as end:
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)


def cases(configurations: dict[str, dict[str, Any]]) -> list[tuple[str, tuple[Any, ...], str]]:
    """Return all tasks, paths and forms, in an order in which neighbours differ in all three."""
    found = [(task, path) for task, config in configurations.items() for path in places(config)]
    every = [(*place, form) for place in found for form in FORMS]
    return random.Random(0).sample(every, len(every))


@pytest.mark.attacks(sampled=1, whole=20)
def test_every_text_at_every_place_is_refused(
    attack: Attack, configurations: dict[str, dict[str, Any]], tmp_path: Path
) -> None:
    for task, path, form in cases(configurations)[attack.number :: 20]:
        write_config_file(tmp_path, changed(configurations[task], path, FORMS[form]))
        with pytest.raises(UserError, match=r"config.yaml: has an interpolation, "):
            read_config(tmp_path / "config.yaml")
        attack.record("refused")


@pytest.mark.attacks(sampled=1, whole=300)
def test_no_command_evaluates_a_text_of_a_run(
    attack: Attack, configurations: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, path, form = cases(configurations)[attack.number]
    write_run(tmp_path / "run", changed(configurations[task], path, FORMS[form]))
    monkeypatch.setenv("GYRAL_SECRET", SECRET)
    with each_once():
        ended = forks.fork(use_all, tmp_path, limit=60)
    where = f"{task}, {'.'.join(map(str, path))}, {form}: {ended}"
    assert ended.status == 0, where
    assert not (tmp_path / CANARY).exists(), where
    written = "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())
    assert SECRET not in ended.out + ended.err + written, where
    assert "Traceback" not in ended.err, where
    said = dict(zip(COMMANDS, ended.err.split("== ")[1:], strict=True))
    for name, text in said.items():
        lines = [line for line in text.splitlines() if "interpolation" in line]
        assert len(lines) == 1, f"{name} {where}"
        assert name in TABLES or lines[0].startswith("error: "), f"{name} {where}"
        assert "config.yaml" in lines[0], f"{name} {where}"
    attack.record("refused", len(said))


ESCAPED = ["\\" * count + "${oc.env:HOME}" for count in range(1, 5)]
WRITTEN = ["${task.delay}", "${now:%Y}", *ESCAPED, "$\\{a}", "a${seed}b"]


@pytest.mark.parametrize(
    "text", [pytest.param(text, marks=() if text == ESCAPED[0] else pytest.mark.slow) for text in WRITTEN]
)
def test_a_run_whose_overrides_hold_an_interpolation_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Once by its directory, and after that by the same command; a copy of a directory is what a kill leaves."""
    whole, killed, again = (tmp_path / name for name in ("whole", "killed", "again"))
    arguments = (*SMALL_COPY, "model=gru", f"paths.data_dir='{text}'")
    starts = [
        ([*arguments, f"hydra.run.dir={whole}"], 8, whole, killed),
        ([f"resume={killed}"], 14, killed, again),
        ([*arguments, f"hydra.run.dir={again}"], None, None, None),
    ]
    for words, step, source, copy in starts:
        with monkeypatch.context() as context:
            if step is not None:
                act = functools.partial(shutil.copytree, source, copy)
                killing.arm("before_update", step, act, context.setattr)
            outcome = invoke(*words)
        assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)
    assert_same_run(whole, again)
    saved = read_config(killed / "config.yaml")
    assert saved == read_config(whole / "config.yaml") == read_config(again / "config.yaml")
    is_evaluated = text.partition("${")[0].count("\\") % 2 == 0 and "$\\" not in text  # by Hydra, on the command line
    assert ("${" in str(saved["paths"]["data_dir"])) != is_evaluated or text == "$\\{a}"
