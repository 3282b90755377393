"""Files of a user's own folder conf/: those that are used are checked, because Hydra composes whatever they hold.

An option in a section that nothing reads has no effect. Hydra reports none of this: a file of `experiment` without its
package, a misspelt section, or a file whose name Gyral's own file has. Only a folder conf/ of the user's makes Gyral
import this module.
"""

import logging
from functools import cache
from pathlib import Path
from typing import Any

from hydra.plugins.config_source import ConfigSource
from omegaconf import DictConfig, ListConfig, OmegaConf

from gyral.config.groups import find_file, find_generated_choice, groups, load_choice, load_file, shown
from gyral.config.own_modules import config_folders, user_config_path
from gyral.config.roles import CHOSEN, GENERATED, OTHERS, SECTIONS
from gyral.config.tables import GROUP as TABLES
from gyral.core import CONF
from gyral.core.errors import UserError, suggest_name

log = logging.getLogger(__name__)

GLOBAL = "# @package _global_"
DEFAULTS = "defaults"
PRIMARY = ("train", "evaluate", "predict", "generate")  # files in conf/ itself


def find(path: str) -> Path | None:
    """Return the user's file of a choice, None if there is none or another file is used, about which a line is printed.

    Args:
        path: group and choice, as optimizer/mine.
    """
    folder = user_config_path()
    if folder is None:
        return None
    group, _, name = path.partition("/")
    gyrals, own = CONF / f"{path}.yaml", folder / f"{path}.yaml"
    used = gyrals if gyrals.is_file() else find_generated_choice(group, name) if group in GENERATED else None
    # a table makes a sweep, and a cell makes a model
    more = {"sweep": [folder / TABLES / f"{name}.yaml"], "model": [folder / "cell" / f"{name}.yaml"]}
    for file in (own, *more.get(group, [])):
        if used not in (None, file) and file.is_file() and file.read_bytes() != used.read_bytes():
            instead = "write its options into conf/experiment/<name>.yaml" if path in PRIMARY else "rename it"
            _warn(f"{shown(file)}: is not read, because {shown(used)} is; {instead}")
    return own if used is None and own.is_file() else None


@cache  # a command asks for a file several times
def _warn(line: str) -> None:
    log.warning(line)


def load(path: str) -> tuple[DictConfig, dict[str, str | None]]:
    """Return the configuration in the user's file of a choice, and its header as Hydra reads it.

    Raises:
        UserError: the file cannot be read, or holds what nothing would read; the line names what to write.
    """
    group, _, name = path.partition("/")
    file = Path(user_config_path() or "", f"{path}.yaml")
    config = load_file(file)
    try:
        header = ConfigSource._get_header_dict(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{shown(file)}:1: {error}") from None
    fault = None
    if group != "hydra":
        fault = _fault_of_defaults(group, config[DEFAULTS]) if DEFAULTS in config else None
        fault = fault or _fault_of_package(group, config, header["package"])
    if fault is not None:
        raise UserError(f"{shown(file)}: {fault}")
    return load_choice(group, name) if group in ("cell", "model", "task") else config, header


def _fault_of_package(group: str, config: DictConfig, package: str | None) -> str | None:
    """Return which options are not in a section that something reads, None if all are."""
    keys = [str(key) for key in config if key != DEFAULTS]
    for key in keys:
        if suggest_name(key, [DEFAULTS]):
            return f"{key}: did you mean {DEFAULTS}?"
    if package in (None, "_group_", group):  # the options are in a section with the name of the group
        if group in CHOSEN and group not in SECTIONS:
            missing = "without it, its options are in a section"
            return f"must begin with the line `{GLOBAL}`; {missing} {group}, which nothing reads"
        if keys == [group] and group in SECTIONS:
            remove = f"remove the line `{group}:` and the indentation"
            return f"{group}: its options are in the section {group} already; {remove}"
        return None
    header = f"the line `# @package {package}`"
    if group in ("cell", "model", "task"):
        return f"must not have {header}; its options are those of {group}"
    known = sorted({*SECTIONS, *OTHERS})
    for key in keys if package == "_global_" else [str(package).partition(".")[0]]:
        if key not in known:
            reason = f"{suggest_name(key, known)}must be one of {', '.join(known)}"
            if group in SECTIONS:
                reason = f"without {header}, it is in the section {group}"
            return f"{key}: no such section or option; {reason}"
    paths = config.get("paths") if package == "_global_" else None
    unknown = {*paths} - {"data_dir"} if isinstance(paths, DictConfig) else ()
    return next((f"paths.{name}: no such option; must be data_dir" for name in unknown), None)


def _fault_of_defaults(group: str, entries: Any) -> str | None:
    """Return why Hydra reads a list of defaults otherwise, or what in it does not exist; None for a right list."""
    if not isinstance(entries, ListConfig):
        return f"{DEFAULTS}: must be a list, such as `[override /task: copy, _self_]`"
    listed: Any = OmegaConf.to_container(entries)
    for entry in listed:
        for key, value in entry.items() if isinstance(entry, dict) else [(None, entry)]:
            if reason := _fault_of_default(group, key, value):
                shown_entry = value if key is None else f"{key}: {'null' if value is None else value}"
                return f"{DEFAULTS}: {shown_entry}: {reason}"
    return None


def _fault_of_default(group: str, key: str | None, value: Any) -> str | None:
    """Return the error of an entry of a defaults list, as the end of a sentence, or None if Hydra can read it."""
    if key is None:
        path = str(value).partition("@")[0]
        path = path.lstrip("/") if path.startswith("/") else f"{group}/{path}"
        return None if value == "_self_" or "$" in path or _exists(path) else f"there is no file {path}.yaml"
    names = groups()
    *words, place = key.split()
    named, at, package = place.partition("@")
    name = named.strip("/")
    is_absolute, overrides, optional = named.startswith("/"), "override" in words, "optional" in words
    right = f"override /{name}{at}{package}: {'null' if value is None else value}"
    is_folder = any((folder / group / name).is_dir() for folder in config_folders())
    if name in names and not is_absolute and not is_folder:  # in the group of the file
        return f"write `{right if not at or overrides else right.removeprefix('override ')}`"
    if name == "cell" and not at and not overrides:
        return None if group in SECTIONS else f"write `/cell@model.cell: {value}`"
    if name in names and not at and not overrides:
        return f"write `{right}`, because every experiment has a {name} already"
    if is_absolute and name not in names and name.partition("/")[0] != "hydra":
        return f"no such group; {suggest_name(name, names)}must be one of {', '.join(names)}"
    for each in value if isinstance(value, list) else [value]:
        is_checked = name in names and not optional and isinstance(each, str) and "$" not in each
        if is_checked and not _exists(f"{name}/{each}"):
            return f"there is no {name} of this name; `gyral train --help {name}` lists them"
    return None


def _exists(path: str) -> bool:
    group, _, name = path.partition("/")
    return (find_file(group, name) or find_generated_choice(group, name)) is not None
