"""Generates conf/wandb, the sweeps for agents of Weights & Biases, from conf/sweep.

python -m gyral.sweeps.wandb_agents            writes the files
python -m gyral.sweeps.wandb_agents --check    exits with status 1 if the files are not up to date
"""

import sys
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep
from omegaconf import OmegaConf

from gyral.config import command_line as command_line  # registers resolvers
from gyral.config.groups import CONFIG_PATH, choices
from gyral.sweeps.grid import values_of

SEARCH = "tune"
SEARCHED = {"tune_copy": ("copy", "rum"), "tune_recall": ("recall", "rum")}  # name: task and model
GOALS = {"max": "maximize", "min": "minimize"}
HEADER = """\
# Generated from conf/sweep/{source}.yaml by `make wandb-sweeps`. {title}
#   wandb sweep conf/wandb/{name}.yaml    then, on each machine,    wandb agent <the agent's path, which it prints>
"""


class _Dumper(yaml.SafeDumper):
    """Writes the nested items of lists with an indent, as yamllint expects."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def definitions() -> dict[str, str]:
    """Return the text of each file in conf/wandb by its name."""
    grids = {name: _grid(name) for name in choices("sweep") if name != SEARCH}
    return grids | {name: _search(name, task, model) for name, (task, model) in SEARCHED.items()}


def _grid(name: str) -> str:
    """Return the definition of a sweep over all combinations of the axes of conf/sweep/<name>.yaml."""
    node = OmegaConf.load(Path(CONFIG_PATH) / "sweep" / f"{name}.yaml")
    axes = {str(key): _values(f"{key}={values}") for key, values in node.hydra.sweeper.params.items()}
    first = [f"{key}={values[0]}" for key, values in axes.items()]
    method = {"method": "grid", "metric": _metric(first)}
    parameters = {key: {"values": values} for key, values in axes.items()}
    return _text(name, name, f"{node.report.title}.", method, parameters)


def _search(name: str, task: str, model: str) -> str:
    """Return the definition of a search over the options of conf/sweep/tune.yaml."""
    node = OmegaConf.load(Path(CONFIG_PATH) / "sweep" / f"{SEARCH}.yaml")
    fixed = {"task": task, "model": model}
    method = {
        "method": "bayes",
        "metric": _metric([f"{key}={value}" for key, value in fixed.items()]),
        "early_terminate": {"type": "hyperband", "min_iter": 2, "eta": 3},  # of validations
    }
    parameters: dict[str, Any] = {key: {"value": value} for key, value in fixed.items()}
    for key, axis in node.hydra.sweeper.params.items():
        parameters[str(key)] = _parameter(f"{key}={axis}")
    return _text(name, SEARCH, f"A search over options of model={model} on task={task}.", method, parameters)


def _metric(overrides: list[str]) -> dict[str, str]:
    """Return the monitored metric of the configuration that overrides give."""
    with initialize_config_dir(CONFIG_PATH, version_base="1.3"):
        task = compose("train", overrides).task
    return {"name": task.monitor, "goal": GOALS[task.mode]}


def _values(override: str) -> list[Any]:
    """Return the values of an axis; numbers as numbers, anything else, such as null, as text."""
    parsed = OverridesParser.create().parse_override(override)
    values = [(text, yaml.safe_load(text)) for text in values_of(parsed)]
    return [value if isinstance(value, int | float) else text for text, value in values]


def _parameter(override: str) -> dict[str, Any]:
    """Return W&B's form of an axis of a search."""
    axis = OverridesParser.create().parse_override(override).value()
    if not isinstance(axis, IntervalSweep):
        return {"values": _values(override)}
    low, high = axis.start, axis.end
    if isinstance(low, int) and isinstance(high, int) and "log" in axis.tags:  # W&B's own would yield floats
        return {"values": [low * 2**power for power in range((high // low).bit_length())]}
    distribution = "int_uniform" if isinstance(low, int) and isinstance(high, int) else "uniform"
    if "log" in axis.tags:
        distribution = "log_uniform_values"
    return {"distribution": distribution, "min": low, "max": high}


def _text(name: str, source: str, title: str, method: dict[str, Any], parameters: dict[str, Any]) -> str:
    directory = f"hydra.run.dir=outputs/sweep/{name}/${{oc.env:WANDB_RUN_ID}}"  # where reports look
    group = f"logger.wandb.group={name}"
    definition = {
        "name": name,
        "project": "gyral",
        "program": "src/train.py",
        "command": ["${env}", "${interpreter}", "-m", "src.train", "${args_no_hyphens}", group, directory],
        **method,
        "parameters": parameters,
    }
    body = yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=1000)
    return HEADER.format(source=source, name=name, title=title) + body


def main() -> None:
    """Write or, with --check, compare the files of conf/wandb."""
    folder = Path(CONFIG_PATH) / "wandb"
    expected = {folder / f"{name}.yaml": text for name, text in definitions().items()}
    current = {path: path.read_text() for path in folder.glob("*.yaml")}
    if "--check" in sys.argv:
        outdated = sorted({path.name for path in {*expected, *current} if expected.get(path) != current.get(path)})
        if outdated:
            sys.exit(f"error: not up to date in {folder}: {', '.join(outdated)}; run `make wandb-sweeps`")
        return
    for path in set(current) - set(expected):
        path.unlink()
    for path, text in expected.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
