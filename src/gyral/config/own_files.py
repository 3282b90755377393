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

from gyral.config.groups import (
    CHOSEN,
    CONFIG_PATH,
    config_folders,
    find_file,
    find_generated_choice,
    groups,
    load_choice,
    load_file,
    shown,
    user_config_path,
)
from gyral.config.roles import OTHERS, SECTIONS
from gyral.config.tables import GENERATED
from gyral.config.tables import GROUP as TABLES
from gyral.core.errors import UserError, suggest_name

log = logging.getLogger(__name__)

HEADER = "# @package"
GLOBAL = f"{HEADER} _global_"
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
    gyrals = Path(CONFIG_PATH, f"{path}.yaml")
    used = gyrals if gyrals.is_file() else find_generated_choice(group, name) if group in GENERATED else None
    # a table makes a sweep, and a cell makes a model
    more = {"sweep": [folder / TABLES / f"{name}.yaml"], "model": [folder / "cell" / f"{name}.yaml"]}
    own = folder / f"{path}.yaml"
    for file in (own, *more.get(group, [])):
        if used is not None and used != file and file.is_file() and file.read_bytes() != used.read_bytes():
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
    if group != "hydra":
        if DEFAULTS in config:
            _check_defaults(file, group, config[DEFAULTS])
        _check_package(file, group, config, header["package"])
    if group in ("cell", "model", "task"):
        return load_choice(group, name), header
    return config, header


def _check_package(file: Path, group: str, config: DictConfig, package: str | None) -> None:
    """Raise `UserError` for options that are not in a section that something reads."""
    keys = [str(key) for key in config if key != DEFAULTS]
    for key in keys:
        if suggest_name(key, [DEFAULTS]):
            raise UserError(f"{shown(file)}: {key}: did you mean {DEFAULTS}?")
    is_in_group = package in (None, "_group_", group)
    if is_in_group and group in CHOSEN and group not in SECTIONS:
        raise UserError(
            f"{shown(file)}: must begin with the line `{GLOBAL}`; without it, its options are in a section {group}, "
            "which nothing reads"
        )
    if not is_in_group and group in ("cell", "model", "task"):
        raise UserError(f"{shown(file)}: must not have the line `{HEADER} {package}`; its options are those of {group}")
    if is_in_group:
        if keys == [group] and group in SECTIONS:
            reason = f"its options are in the section {group} already; remove the line `{group}:` and the indentation"
            raise UserError(f"{shown(file)}: {group}: {reason}")
        return
    known = {*SECTIONS, *OTHERS}
    sections = keys if package == "_global_" else [str(package).partition(".")[0]]
    for key in sections:
        if key not in known:
            reason = f"{suggest_name(key, sorted(known))}must be one of {', '.join(sorted(known))}"
            if group in SECTIONS:
                reason = f"without the line `{HEADER} {package}`, it is in the section {group}"
            raise UserError(f"{shown(file)}: {key}: no such section or option; {reason}")
    if package == "_global_" and isinstance(config.get("paths"), DictConfig):
        for name in {*config.paths} - {"data_dir"}:
            raise UserError(f"{shown(file)}: paths.{name}: no such option; must be data_dir")


def _check_defaults(file: Path, group: str, entries: Any) -> None:
    """Raise `UserError` for a list of defaults that Hydra reads otherwise, or that names what does not exist."""
    if not isinstance(entries, ListConfig):
        raise UserError(f"{shown(file)}: {DEFAULTS}: must be a list, such as `[override /task: copy, _self_]`")
    listed: Any = OmegaConf.to_container(entries)
    for entry in listed:
        for key, value in entry.items() if isinstance(entry, dict) else [(None, entry)]:
            if reason := _fault_of_default(group, key, value):
                shown_entry = value if key is None else f"{key}: {'null' if value is None else value}"
                raise UserError(f"{shown(file)}: {DEFAULTS}: {shown_entry}: {reason}")


def _fault_of_default(group: str, key: str | None, value: Any) -> str | None:
    """Return what is wrong with an entry of a list of defaults, as the end of a sentence, None if Hydra reads it."""
    names = groups()
    if key is None:
        path = str(value).partition("@")[0]
        path = path.lstrip("/") if path.startswith("/") else f"{group}/{path}"
        return None if value == "_self_" or _exists(path) or "$" in path else f"there is no file {path}.yaml"
    *words, place = key.split()
    named, at, _ = place.partition("@")
    name = named.strip("/")
    is_absolute, overrides, optional = named.startswith("/"), "override" in words, "optional" in words
    right = f"override /{name}{at}{place.partition('@')[2]}: {'null' if value is None else value}"
    is_folder = any((folder / group / name).is_dir() for folder in config_folders())
    if name in names and not is_absolute and not is_folder:  # in the group of the file
        return f"write `{right if not at or overrides else right.removeprefix('override ')}`"
    if name == "cell" and not at and not overrides:
        return None if group in SECTIONS else f"write `/cell@model.cell: {value}`"
    if name in names and not at and not overrides:
        return f"write `{right}`, because every experiment has a {name} already"
    if is_absolute and name not in names and name.partition("/")[0] != "hydra":
        return f"no such group; {suggest_name(name, names)}must be one of {', '.join(names)}"
    values = value if isinstance(value, list) else [value]
    for each in values if name in names and not optional else ():
        if isinstance(each, str) and "$" not in each and not _exists(f"{name}/{each}"):
            return f"there is no {name} of this name; `gyral train --help {name}` lists them"
    return None


def _exists(path: str) -> bool:
    group, _, name = path.partition("/")
    return (find_file(group, name) or find_generated_choice(group, name)) is not None
