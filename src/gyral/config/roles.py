"""The identity of a run: the role of each option in names of directories, sweeps, rows and records. No torch."""

from collections.abc import Mapping
from functools import lru_cache
from inspect import Parameter
from typing import Any

from hydra.utils import get_object

from gyral.config.plain import flatten
from gyral.core.signatures import parameters_of

REQUIRED = ("task", "model", "optimizer", "trainer")  # sections of the configuration, each with a group of choices
SECTIONS = (*REQUIRED, "scheduler", "callbacks", "logger")  # an optional section, and two sections of sections
GENERATED = ("experiment", "column", "sweep")  # the groups whose choices come from tables
CHOSEN = (*SECTIONS, "launcher", *GENERATED, "debug")  # all groups of conf/train.yaml
# the other keys of conf/train.yaml
OTHERS = ("seed", "threads", "deterministic", "resume", "weights", "trust", "paper", "report", "paths", "hydra")

SELECTION = "selection"  # chooses a job of a sweep, or one of the runs that a row averages
SETTING = "setting"  # determines what is computed; the role of every option that the table lacks
MACHINE = "machine"  # how it is computed, which changes results by rounding at most; names directories, but no row
PROCESS = "process"  # where it is computed, and what is shown and logged; names nothing and is not recorded

# The longest prefix of an option's key in this table determines the role of the option.
ROLES: Mapping[str, str] = {
    "experiment": SELECTION,
    "sweep": SELECTION,
    "seed": SELECTION,
    "threads": SELECTION,  # another number rounds differently: it is another run, of the same row
    "trainer.strategy": MACHINE,
    "trainer.devices": MACHINE,
    "trainer.num_nodes": MACHINE,
    "task.ngrams": MACHINE,  # references for a report
    "hydra": PROCESS,
    "launcher": PROCESS,
    "logger": PROCESS,
    "logger.wandb.entity": PROCESS,
    "logger.wandb.group": PROCESS,
    "logger.wandb.tags": PROCESS,
    "logger.wandb.notes": PROCESS,
    "callbacks.progress_bar": PROCESS,
    "paths": PROCESS,
    "paths.data_dir": PROCESS,
    "resume": PROCESS,
    "trust": PROCESS,
    "paper": PROCESS,
    "report": PROCESS,
}
DATA_DIR = "data_dir"  # a process option in every section: the location of corpora
IN_FOLDERS = ("task", "model")  # settings that folders or the names of models show
# Hydra leaves out exact keys. The progress bar names directories nevertheless, so that earlier sweeps find theirs.
NOT_IN_DIRECTORIES = tuple(key for key, role in ROLES.items() if role == PROCESS and key != "callbacks.progress_bar")


@lru_cache(4096)  # a report asks for the same keys many times
def role_of(key: str) -> str:
    """Return the role of an option, given by its key or by an override: "selection", "setting", "machine" or "process".

    An override has the form of the command line, such as ~callbacks.progress_bar or +trainer.devices=2.
    """
    key = key_of(key).replace("/", ".")  # a group of Hydra's, as hydra/launcher
    if key.rpartition(".")[2] == DATA_DIR:
        return PROCESS
    while key and key not in ROLES:
        key = key.rpartition(".")[0]
    return ROLES.get(key, SETTING)


def key_of(override: str) -> str:
    """Return the key of an override of the command line."""
    return override.lstrip("+~").partition("=")[0]


def settings_of(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the overrides, given by key, whose role is "setting"."""
    return {key: override for key, override in overrides.items() if role_of(key) == SETTING}


def identity_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return by flat key the options that determine the results of a run; a configuration is plain values."""
    return determining(dict(flatten(config)))


def determining(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, given by key, that determine the results of a run. A resumed run may change all others."""
    return {key: value for key, value in options.items() if role_of(key) in (SELECTION, SETTING)}


def first_difference(saved: dict[str, Any], wanted: dict[str, Any]) -> str | None:
    """Return the first key in which two flat configurations differ, with both values, or None."""
    for key in sorted({*saved, *wanted}):
        if saved.get(key) != wanted.get(key):
            return f"{key} is {saved.get(key)} there and {wanted.get(key)} here"
    return None


def add_defaults(saved: Any, wanted: Any) -> Any:
    """Return a saved configuration, completed with options of a wanted configuration that have their default value.

    A class may have gained an option since the run started. Its default in the constructor is not a difference between
    the configurations. Both configurations are plain containers.
    """
    if not isinstance(saved, dict) or not isinstance(wanted, dict):
        return saved
    completed = {key: add_defaults(value, wanted.get(key)) for key, value in saved.items()}
    missing = [key for key in wanted if key not in saved]
    if missing and wanted.get("_target_") == saved.get("_target_") is not None:
        parameters = parameters_of(get_object(wanted["_target_"])) or {}
        for key in missing:
            default = parameters[key].default if key in parameters else Parameter.empty
            if (list(default) if isinstance(default, tuple) else default) == wanted[key]:  # saved as a list
                completed[key] = wanted[key]
    return completed
