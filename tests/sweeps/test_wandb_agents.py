"""Sweeps for W&B agents: the files are generated from conf/sweep, and the commands of an agent compose."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

from gyral.config.groups import choices
from gyral.reports import catalogue as sweeps
from gyral.sweeps import wandb_agents
from tests.helpers.running import CONF, compose_config

FILES = sorted((CONF / "wandb").glob("*.yaml"))
GRIDS = [sweep.name for sweep in sweeps.named()]


def load(path: Path) -> dict[str, Any]:
    definition = yaml.safe_load(path.read_text())
    assert isinstance(definition, dict)
    return definition


def values_of(parameter: dict[str, Any]) -> list[Any]:
    """Return values that a parameter may take: all that are listed, or the ends of a distribution."""
    if "value" in parameter:
        return [parameter["value"]]
    return parameter["values"] if "values" in parameter else [parameter["min"], parameter["max"]]


def commands(definition: dict[str, Any]) -> list[list[str]]:
    """Return commands that an agent runs and that show each value at least once."""
    columns = {key: values_of(parameter) for key, parameter in definition["parameters"].items()}
    shown = []
    for number in range(max(map(len, columns.values()))):
        chosen = {key: {"value": values[number % len(values)]} for key, values in columns.items()}
        words = create_sweep_command(list(definition["command"]))
        known = {"${env}": ["/usr/bin/env"], "${interpreter}": ["python"]}
        known["${args_no_hyphens}"] = create_sweep_command_args({"args": chosen})["args_no_hyphens"]
        shown.append(list(itertools.chain.from_iterable(known.get(word, [word]) for word in words)))
    return shown


def test_files_are_up_to_date() -> None:
    assert {path.stem: path.read_text() for path in FILES} == wandb_agents.definitions()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_an_agent_runs_composes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = load(path)
    assert {"name", "project", "program", "command", "method", "metric", "parameters"} <= set(definition)
    assert definition["name"] == path.stem
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    goals = {"max": "maximize", "min": "minimize"}
    shown = commands(definition)
    for words in shown[:: max(1, len(shown) - 1)] if path.stem in GRIDS else shown:  # rows have tests
        assert words[:4] == ["/usr/bin/env", "python", "-m", "src.train"]
        overrides = words[4:]
        assert not any(re.search(r"\$\{(?!oc\.env:)", word) for word in overrides)
        config = compose_config(*overrides, hydra_too=True)
        assert config.hydra.run.dir.endswith(f"{path.stem}/abc123")
        assert config.hydra.mode is None, "an agent's runs are no sweeps of their own"
        assert definition["metric"] == {"name": config.task.monitor, "goal": goals[config.task.mode]}
        assert config.logger.wandb.group == path.stem
        parsed = OverridesParser.create().parse_overrides(overrides)
        assert not any(override.is_sweep_override() for override in parsed)


@pytest.mark.parametrize("name", GRIDS)
def test_each_table_and_figure_has_a_grid_with_the_sweeps_axes(name: str) -> None:
    definition = load(CONF / "wandb" / f"{name}.yaml")
    assert definition["method"] == "grid"
    axes = {key: [str(value) for value in values_of(value)] for key, value in definition["parameters"].items()}
    assert axes == sweeps.load(name).axes


def test_searches_stop_what_is_not_worth_going_on() -> None:
    searches = [load(path) for path in FILES if path.stem not in GRIDS]
    assert searches
    for definition in searches:
        assert definition["method"] == "bayes"
        assert definition["early_terminate"]["type"] == "hyperband"
        assert {"optimizer.lr", "model.cell.eta", "model.cell.hidden_size"} <= set(definition["parameters"])


def test_every_group_of_rows_has_a_sweep() -> None:
    """A table or figure that has experiments has a sweep with all of them."""
    swept = [experiment for name in GRIDS for experiment in sweeps.load(name).axes["experiment"]]
    assert sorted(swept) == sorted(choices("experiment"))
