"""`gyral sweep`: the definition of a sweep for W&B agents, whose commands compose."""

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from gyral.config.groups import choices, generated_choices
from gyral.reports import catalogue as sweeps
from tests.helpers.found import at_least
from tests.helpers.running import compose_config, invoke

GRIDS = at_least(51, sorted(generated_choices("sweep")))
SEARCHES = [("task=copy",), ("task=recall", "model=rum")]


def defined(name: str, *overrides: str) -> dict[str, Any]:
    outcome = invoke(name, *overrides, entry="sweep")
    assert outcome.status == 0, outcome.err
    definition = yaml.safe_load(outcome.out)
    assert isinstance(definition, dict)
    return definition


def values_of(parameter: dict[str, Any]) -> list[Any]:
    """Return values that a parameter may take: all that are listed, or the ends of a distribution."""
    if "value" in parameter:
        return [parameter["value"]]
    return parameter["values"] if "values" in parameter else [parameter["min"], parameter["max"]]


def commands(definition: dict[str, Any]) -> list[list[str]]:
    """Return commands that an agent runs and that show each value at least once."""
    # here because the import takes seconds, which the collection of tests would take in every process
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    columns = {key: values_of(parameter) for key, parameter in definition["parameters"].items()}
    shown = []
    for number in range(max(map(len, columns.values()))):
        chosen = {key: {"value": values[number % len(values)]} for key, values in columns.items()}
        words = create_sweep_command(list(definition["command"]))
        known = {"${env}": ["/usr/bin/env"], "${interpreter}": ["python"]}
        known["${args_no_hyphens}"] = create_sweep_command_args({"args": chosen})["args_no_hyphens"]
        shown.append(list(itertools.chain.from_iterable(known.get(word, [word]) for word in words)))
    return shown


def check_commands(definition: dict[str, Any], shown: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that commands of an agent are single runs of the sweep that log the metric of the definition."""
    monkeypatch.setenv("WANDB_RUN_ID", "abc123")
    goals = {"max": "maximize", "min": "minimize"}
    for words in shown:
        assert words[:3] == ["/usr/bin/env", "python", "-m"]
        overrides = words[4:]
        assert not any(re.search(r"\$\{(?!oc\.env:)", word) for word in overrides)
        config = compose_config(*overrides, hydra_too=True)
        assert config.hydra.run.dir.endswith(f"{definition['name']}/abc123")
        assert config.hydra.mode is None, "an agent's runs are no sweeps of their own"
        assert definition["metric"] == {"name": config.task.monitor, "goal": goals[config.task.mode]}
        assert config.logger.wandb.group == definition["name"]
        parsed = OverridesParser.create().parse_overrides(overrides)
        assert not any(override.is_sweep_override() for override in parsed)


@pytest.mark.named("mage_paper_babi_mix", "robustness_copy", "rum_paper_fig4")
@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_has_the_axes_of_the_sweep_and_its_first_and_last_run_compose(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = sweeps.load(name).chosen
    definition = defined(name, *(f"{key}=0.5" for key in chosen))
    assert definition["method"] == "grid"
    axes = {key: [str(value) for value in values_of(value)] for key, value in definition["parameters"].items()}
    assert axes == sweeps.load(name).axes | {key: ["0.5"] for key in chosen}
    shown = commands(definition)
    check_commands(definition, [shown[0], shown[-1]], monkeypatch)


@pytest.mark.parametrize("overrides", SEARCHES, ids=" ".join)
def test_a_search_has_distributions_and_early_stopping(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = defined("tune", *overrides)
    assert definition["method"] == "bayes"
    assert definition["early_terminate"]["type"] == "hyperband"
    assert definition["parameters"]["optimizer.lr"]["distribution"] == "log_uniform_values"
    assert definition["parameters"]["model.cell.hidden_size"] == {"values": [32, 64, 128, 256]}
    check_commands(definition, commands(definition), monkeypatch)


def test_overrides_hold_for_all_runs_and_replace_axes() -> None:
    parameters = defined("adding", "seed=4", "trainer.max_steps=10")["parameters"]
    assert parameters["seed"] == {"value": 4}
    assert parameters["trainer.max_steps"] == {"value": 10}
    assert parameters["experiment"] == defined("adding")["parameters"]["experiment"]


def own_sweep(folder: Path, text: str) -> None:
    (folder / "conf" / "sweep").mkdir(parents=True)
    (folder / "conf" / "sweep" / "mine.yaml").write_text(text)


def test_a_sweep_of_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own_sweep(
        tmp_path,
        "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {model: 'rum,gru', seed: 'range(1,3)'}}}\n",
    )
    definition = defined("mine", "task=recall")
    assert definition["parameters"] == {
        "task": {"value": "recall"},
        "model": {"values": ["rum", "gru"]},
        "seed": {"values": [1, 2]},
    }
    assert definition["command"][2:4] == ["-m", "gyral.train"], "there is no checkout here"
    check_commands(definition, commands(definition), monkeypatch)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("addin",), "sweep=addin: did you mean adding? must be one of adding, "),
        (("adding", "task.nothing=1"), "task.nothing: no such option"),
        (("adding", "model.cell.hidden_size=interval(1,2)"), "model.cell.hidden_size=interval(1,2): must be a list"),
        (("adding", "seed"), "seed: must be key=value"),
        (("adding", "~seed"), "~seed: must be key=value"),
        (
            ("mad_paper_tasks", "optimizer.lr=0.1"),
            "sweep=mad_paper_tasks: W&B's agents choose no options on the validation split; add optimizer.weight_decay",
        ),
        (("mine",), "sweep=mine: W&B's agents know axes alone; write trainer below hydra.sweeper.params"),
    ],
)
def test_a_sweep_that_agents_cannot_run_is_one_line(
    words: tuple[str, ...], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own_sweep(
        tmp_path,
        "# @package _global_\ntrainer: {max_steps: 9}\nhydra: {sweeper: {params: {model: 'rum,gru'}}}\n",
    )
    outcome = invoke(*words, entry="sweep")
    assert outcome.out == ""
    assert outcome.error.startswith(error)


def test_every_group_of_rows_has_a_sweep() -> None:
    """A table or figure that has experiments has a sweep with all of them."""
    swept = [experiment for name in GRIDS for experiment in sweeps.load(name).axes["experiment"]]
    assert sorted(swept) == sorted(choices("experiment"))


def test_the_command_says_what_it_needs_and_that_it_starts_nothing() -> None:
    assert invoke(entry="sweep").error == "the following arguments are required: NAME; see gyral sweep --help"
    usage, _, *text = invoke("--help", entry="sweep").out.splitlines()
    assert usage.endswith("NAME [key=value ...]")
    assert " ".join(text).startswith(
        "Print the definition of a sweep for agents of Weights & Biases (W&B); this command"
    )
    assert "starts nothing" in " ".join(text)
