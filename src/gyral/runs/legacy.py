"""Run directories that earlier versions wrote: translation of their configurations, checkpoints, overrides and names.

This is the only module that knows about earlier versions. Files on disk are not changed; they are translated whenever
they are read. The tables cover commit 947ec39, the last one in which the package was called `src` and the project Gyre.
"""

import inspect
from pathlib import Path
from typing import Any

from hydra.utils import get_object

# Prefixes of `_target_`, the most specific first.
TARGETS = {
    "src.callbacks.Solved": "gyral.training.callbacks.EarlyStopping",
    "src.callbacks.": "gyral.training.callbacks.",
    "src.loggers.": "gyral.training.loggers.",
    "src.schedules.": "gyral.training.schedules.",
    "src.data.corpora.": "gyral.data.text.corpora.",
    "src.data.summaries.": "gyral.applications.summarization.data.corpus.",
    "src.models.recurrent.": "gyral.nn.recurrent.",
    "src.": "gyral.",
    "hydra_plugins.gyre.": "hydra_plugins.gyral.",
}
# Rows of conf/experiment/rum_paper/table4*, and choices of the group model.
ROWS = {"lead": "pointer_generator", "lead_coverage": "pointer_generator_coverage"}
MODELS = {"lead": "pointer_generator"}
KEYS = {"callbacks.solved.at": "callbacks.early_stopping.stopping_threshold"}  # options of the command line
NOT_STOPPED, THRESHOLD_REACHED, PATIENCE_EXHAUSTED = 0, 1, 3  # of Lightning's EarlyStoppingReason


def translate_config(config: Any) -> Any:
    """Return a configuration, as plain containers, in which an earlier version's names are replaced."""
    if not is_old(config):
        return config
    config = _translate_targets(config)
    callbacks = config.get("callbacks")
    if isinstance(callbacks, dict) and "solved" in callbacks:
        early_stopping = {
            "_target_": TARGETS["src.callbacks.Solved"],
            "stopping_threshold": callbacks["solved"]["at"],
            "patience": (callbacks.get("early_stopping") or {}).get("patience"),
        }
        others = {name: node for name, node in callbacks.items() if name not in ("solved", "early_stopping")}
        config["callbacks"] = {**others, "early_stopping": early_stopping}
    return config


def is_old(config: Any) -> bool:
    """Return whether an earlier version wrote a configuration."""
    task = config.get("task") if isinstance(config, dict) else None
    return isinstance(task, dict) and str(task.get("_target_")).startswith("src.")


def _translate_targets(node: Any) -> Any:
    if isinstance(node, list):
        return [_translate_targets(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: translate_target(value) if key == "_target_" else _translate_targets(value) for key, value in node.items()
    }


def translate_target(target: str) -> str:
    """Return the current name of a class or function."""
    for old, new in TARGETS.items():
        if target.startswith(old):
            return new + target.removeprefix(old)
    return target


def add_defaults(saved: Any, wanted: Any) -> Any:
    """Return a saved configuration with those options of a wanted one that it lacks and that have their default value.

    An option that was added to a class after a run had started then is not a difference between the configurations.
    Defaults are those of the constructor. Configurations are plain containers.
    """
    if not isinstance(saved, dict) or not isinstance(wanted, dict):
        return saved
    completed = {key: add_defaults(value, wanted.get(key)) for key, value in saved.items()}
    missing = [key for key in wanted if key not in saved]
    if missing and wanted.get("_target_") == saved.get("_target_") is not None:
        parameters = inspect.signature(get_object(wanted["_target_"])).parameters
        for key in missing:
            if key in parameters and parameters[key].default == wanted[key]:
                completed[key] = wanted[key]
    return completed


def translate_checkpoint(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint in which the states of an earlier version's callbacks are those of the current callbacks."""
    callbacks = checkpoint.get("callbacks")
    if not callbacks or "Solved" not in callbacks:
        return checkpoint
    import torch

    others = {name: state for name, state in callbacks.items() if name not in ("Solved", "EarlyStopping")}
    old = callbacks.get("EarlyStopping") or {"best": None, "waited": 0, "stopped": False}
    reason = PATIENCE_EXHAUSTED if old["stopped"] else NOT_STOPPED
    state = {
        "wait_count": old["waited"],
        "stopping_reason": THRESHOLD_REACHED if callbacks["Solved"]["solved"] else reason,
    }
    if old["best"] is not None:
        state["best_score"] = torch.tensor(old["best"], dtype=torch.float64)
    return {**checkpoint, "callbacks": {**others, "EarlyStopping": state}}


def translate_override(override: str) -> str:
    """Return an override of the command line in which an earlier version's names are replaced."""
    key, equals, value = override.partition("=")
    sign = key[: len(key) - len(key.lstrip("+~"))]
    name = KEYS.get(key.lstrip("+~"), key.lstrip("+~"))
    if name == "experiment":
        value = ",".join(_translate_experiment(item) for item in value.split(","))
    if name == "model":
        value = ",".join(MODELS.get(item, item) for item in value.split(","))
    return f"{sign}{name}{equals}{value}"


def _translate_experiment(experiment: str) -> str:
    group, slash, row = experiment.rpartition("/")
    return f"{group}{slash}{ROWS.get(row, row)}" if group.strip().startswith("rum_paper/table4") else experiment


def row_folders(experiment: str) -> tuple[str, ...]:
    """Return the names that the folder of a row may have in the directory of its sweep: current and earlier."""
    row = Path(experiment).name
    return row, *(old for old, new in ROWS.items() if new == row)


def existing_subdirectory(sweep: Path, subdirectory: str) -> str:
    """Return the directory of a job relative to its sweep: the one of an earlier version if only that exists."""
    if (sweep / subdirectory).exists():
        return subdirectory
    old = _old_subdirectory(subdirectory)
    return old if (sweep / old).is_dir() else subdirectory


def _old_subdirectory(subdirectory: str) -> str:
    """Return the name that 947ec39 gave to a job's directory: <row or task/model>/<overrides>."""
    *folders, overrides = subdirectory.split("/")
    old_folders = {new: old for old, new in (MODELS | ROWS).items()}
    old_keys = {new: old for old, new in KEYS.items()}
    words = [word.partition("=") for word in overrides.split(",")]
    renamed = sorted(f"{old_keys.get(key, key)}{equals}{value}" for key, equals, value in words)
    return "/".join([*(old_folders.get(folder, folder) for folder in folders), ",".join(renamed)])
