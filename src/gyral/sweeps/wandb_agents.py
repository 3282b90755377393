"""The definition of a sweep for agents of Weights & Biases, from its table or file. Imports no torch."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override
from omegaconf import OmegaConf

from gyral.config.composition import compose_with_hydra
from gyral.config.groups import CONFIG_PATH, load_choice
from gyral.config.words import read_words
from gyral.core.commands import typed
from gyral.core.errors import OptionError, UserError
from gyral.sweeps.grid import values_of

SEARCHER = "Tune"  # the class of the sweeper of a search, as in conf/sweep/tune.yaml
SECTIONS = {"defaults", "hydra", "report"}  # of a sweep's file, besides which W&B's agents know axes alone
GOALS = {"max": "maximize", "min": "minimize"}
HEADER = """\
# {title} Printed by: {command}
#   wandb sweep <this file>    then, on each machine,    wandb agent <the agent's path, which it prints>
"""


class _Dumper(yaml.SafeDumper):
    """Writes the nested items of lists with an indent, as yamllint expects."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def definition(name: str, words: Sequence[str] = ()) -> str:
    """Return the definition of a sweep in YAML: a grid of all combinations, or a Bayesian search for sweep=tune.

    Args:
        name: name of the sweep, as in sweep=<name>.
        words: overrides of all runs, which replace axes of the same key.

    Raises:
        UserError: there is no such sweep, or a run of it cannot be composed, or W&B's agents cannot run it.
    """
    for word in words:
        if not re.match(r"\+?\w[^=]*=", word):
            raise UserError(f"{word}: must be key=value")
    train, typed_words = Path(CONFIG_PATH, "train"), words
    _, _, *words = read_words(["-m", f"sweep={name}", *words], train)
    composed = compose_with_hydra([f"sweep={name}"])
    sweeper, chosen = composed.hydra.sweeper, composed.hydra.runtime.choices
    searches = str(sweeper.get("_target_")).endswith(f".{SEARCHER}")
    axes = {str(key): _parse(f"{key}={values}") for key, values in (sweeper.get("params") or {}).items()}
    further = set(map(str, load_choice("sweep", name))) - SECTIONS
    if sweeper.get("together"):
        raise OptionError("sweep", name, "W&B's agents run every combination, without hydra.sweeper.together")
    if not axes or (further and not searches):
        reason = f"W&B's agents know axes alone; write {', '.join(sorted(further))} below hydra.sweeper.params"
        raise OptionError("sweep", name, reason if axes else "has no axes in hydra.sweeper.params")
    given = {override.get_key_element(): override for override in map(_parse, words)}
    if left := sorted(map(str, {*(sweeper.get("choose") or {})} - {"seed", *given})):
        own = " ".join(f"{key}=…" for key in left)
        raise OptionError("sweep", name, f"W&B's agents choose no options on the validation split; add {own}")
    title = composed.report.title if OmegaConf.select(composed, "report.title") else f"The sweep {name}"
    method: dict[str, Any] = {"method": "grid"}
    command = typed(["gyral", "sweep", name, *typed_words])
    if searches:
        given = {key: _parse(f"{key}={chosen[key]}") for key in ("task", "model")} | given
        task, model = (given[key].get_value_element_as_str() for key in ("task", "model"))
        name, title = f"{name}_{task}", f"A search over options of model={model} on task={task}"
        method = {"method": "bayes"}
    fixed = given if searches else axes | given
    task_node = compose_with_hydra([f"{key}={values_of(override)[0]}" for key, override in fixed.items()]).task
    method["metric"] = {"name": task_node.monitor, "goal": GOALS[task_node.mode]}
    if searches:
        method["early_terminate"] = {"type": "hyperband", "min_iter": 2, "eta": 3}  # of validations
    parameters = {key: _fixed(override) for key, override in given.items()}
    parameters |= {key: _axis(override) for key, override in axes.items() if key not in given}
    return HEADER.format(title=f"{title}.", command=command) + _text(name, method, parameters)


def _parse(word: str) -> Override:
    return OverridesParser.create().parse_override(word)


def _values(override: Override) -> list[Any]:
    """Return the values of an axis; numbers as numbers, anything else, such as null, as text."""
    values = [(text, yaml.safe_load(text)) for text in values_of(override)]
    return [value if isinstance(value, int | float) else text for text, value in values]


def _fixed(override: Override) -> dict[str, Any]:
    """Return W&B's form of an override of the command line, which has one value or several."""
    values = _values(override)
    return {"value": values[0]} if len(values) == 1 else {"values": values}


def _axis(override: Override) -> dict[str, Any]:
    """Return W&B's form of an axis: a list of values, or a distribution."""
    axis = override.value()
    if not isinstance(axis, IntervalSweep):
        return {"values": _values(override)}
    low, high = axis.start, axis.end
    if isinstance(low, int) and isinstance(high, int) and "log" in axis.tags:  # W&B's own would yield floats
        return {"values": [low * 2**power for power in range((high // low).bit_length())]}
    distribution = "int_uniform" if isinstance(low, int) and isinstance(high, int) else "uniform"
    if "log" in axis.tags:
        distribution = "log_uniform_values"
    return {"distribution": distribution, "min": low, "max": high}


def _text(name: str, method: dict[str, Any], parameters: dict[str, Any]) -> str:
    package = "src" if Path("src/train.py").is_file() else "gyral"  # a bare checkout, or an installation
    directory = f"hydra.run.dir=outputs/sweep/{name}/${{oc.env:WANDB_RUN_ID}}"  # where reports look
    group = f"logger.wandb.group={name}"
    content = {
        "name": name,
        "project": "gyral",
        "program": f"{package}/train.py",
        "command": ["${env}", "${interpreter}", "-m", f"{package}.train", "${args_no_hyphens}", group, directory],
        **method,
        "parameters": parameters,
    }
    return str(yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=1000))
