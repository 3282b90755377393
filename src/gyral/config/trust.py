"""The classes and functions that the configuration in a run directory may name. Imports no torch.

A run directory may come from somebody else. Its configuration names classes and functions (`_target_`) that are
imported and called, so that any name would be any code. By default only these are allowed, each in its own section:

* the names in Gyral's own conf/, exactly;
* the optimizers and schedules of torch, and its recurrent cells for the cell `external`: public subclasses of a base;
* names in modules that the user lets in by `trust=<module>`, if these modules define them.

Configurations that are composed from conf/ and the command line are the user's own words, and are not checked.
"""

import logging
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.utils import get_object
from omegaconf import ListConfig

from gyral.config.groups import CONFIG_PATH
from gyral.config.own_modules import NEVER_TRUSTED
from gyral.config.plain import SafeLoader, walk
from gyral.config.tables import GROUP as TABLES
from gyral.core.errors import OptionError

TARGET = "_target_"
CELL = "cell"  # also an option of Gyral's cells; if it is text, it is the dotted name of a class, as of `external`
# the groups whose sections have names; a place is one of them, or with a dot the sections inside of its section
GROUPS = ("model", CELL, "task", "optimizer", "scheduler", "trainer", "callbacks", "logger")
# by place, a module of torch and the base class of its classes that may be named there
TORCH = {
    "optimizer": ("torch.optim", "Optimizer"),
    "scheduler": ("torch.optim.lr_scheduler", "LRScheduler"),
    CELL: ("torch.nn", "RNNCellBase"),
}
DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def check_names(config: dict[str, Any], option: str, directory: Path, trust: Any = None) -> None:
    """Check that the saved configuration of a run directory names only what is allowed, before anything is imported.

    Args:
        config: the configuration, as plain containers.
        option: the option that gives the run directory, such as resume.
        directory: the run directory.
        trust: the option `trust`: a module, or a list of modules.

    Raises:
        OptionError: a name that is not allowed, or modules that cannot be trusted.
    """

    def refused(key: str, name: Any, reason: str) -> OptionError:
        return OptionError(option, directory, f"its configuration names {name} ({key}), which {reason}")

    trusted = trusted_modules(trust)
    foreign = [(key, name) for key, name in _names(config) if not _is_allowed(key, name)]
    for key, name in foreign:
        if not _can_be_trusted(name):
            raise refused(key, name, "the configuration of a run must not name")
    if untrusted := [(key, name) for key, name in foreign if not _is_in(name, trusted)]:
        words = _trust_word([*trusted, *(_package(name) for _, name in untrusted)])
        raise refused(*untrusted[0], f"is not part of Gyral; write {words} if you trust its author and the run's")
    for key, name in foreign:
        try:
            found = find_object(name)
        except Exception as error:  # importing a module may raise anything
            reason = " ".join(f"cannot be imported: {error.__cause__ or error}".split())
            raise refused(key, name, reason) from error
        origin = f"{getattr(found, '__module__', type(found).__module__)}.{getattr(found, '__qualname__', '')}"
        if not _is_in(origin, trusted):  # `my_cells.os.system`
            raise refused(key, name, f"is {origin.rstrip('.')}, of a module that trust= does not name")


def find_object(name: str) -> Any:
    """Return the class or function with a dotted name. Hydra raises an error and also logs it; here it only raises it.

    Raises:
        ImportError: The name cannot be imported.
        ValueError: The name is not a dotted name.
    """
    log = logging.getLogger("hydra.utils")
    was_disabled, log.disabled = log.disabled, True
    try:
        return get_object(name)
    finally:
        log.disabled = was_disabled


def trusted_modules(trust: Any) -> tuple[str, ...]:
    """Return the value of the option `trust` as names of modules.

    Raises:
        OptionError: a value that is not the name of a module, or the name of one that no run directory needs.
    """
    if trust is None:
        return ()
    modules = tuple(trust) if isinstance(trust, list | tuple | ListConfig) else (trust,)
    for module in modules:
        if not (isinstance(module, str) and DOTTED_NAME.fullmatch(module)):
            raise OptionError("trust", module, "must be the name of a module, or a list: trust=[my_cells,my_tasks]")
        if _package(module) in NEVER_TRUSTED:
            raise OptionError("trust", module, "must be your own module or one of another package")
    return modules


def trust_words(config: dict[str, Any]) -> list[str]:
    """Return the words that a command needs besides the run directory: trust=<modules>, or none.

    Args:
        config: the configuration of the run, as plain containers.
    """
    # names of Gyral are left out first: then no file is read
    others = [_package(name) for key, name in _names(config) if _can_be_trusted(name) and not _is_allowed(key, name)]
    return [_trust_word(others)] if others else []


def _trust_word(modules: list[str]) -> str:
    unique = list(dict.fromkeys(modules))
    return f"trust={unique[0]}" if len(unique) == 1 else f"trust=[{','.join(unique)}]"


def _package(name: str) -> str:
    return name.partition(".")[0]


def _is_in(name: str, modules: tuple[str, ...]) -> bool:
    return name.startswith(tuple(f"{module}." for module in modules))


def _can_be_trusted(name: Any) -> bool:
    """Return whether a name may be allowed by `trust=`: a dotted name in a module of the user or of a package."""
    is_name = isinstance(name, str) and DOTTED_NAME.fullmatch(name)
    return bool(is_name) and _package(name) not in NEVER_TRUSTED and "." in name


def _is_allowed(key: str, name: Any) -> bool:
    """Return whether a section or option may have a name without `trust`."""
    place = _place(key)
    if not isinstance(name, str) or name in known_names(place):
        return isinstance(name, str)
    module, _, attribute = name.rpartition(".")
    if place not in TORCH or module != TORCH[place][0] or attribute.startswith("_"):
        return False
    found, base = (getattr(import_module(module), each, None) for each in (attribute, TORCH[place][1]))
    return isclass(found) and isclass(base) and issubclass(found, base)


@cache
def known_names(place: str) -> set[str]:
    """Return the names that Gyral's own conf/ has at a place; a folder conf/ of the user is not searched.

    Neither the folders of other groups are read nor tables, which have no names of their own.
    """
    group = place.rstrip(".")
    if group not in GROUPS:  # Hydra's section is not saved
        return set()
    others = {*GROUPS, TABLES} - {group, *(("model",) if group == CELL else ())}
    found: set[str] = set()
    for path in Path(CONFIG_PATH).rglob("*.yaml"):
        folder = path.relative_to(CONFIG_PATH).parts[0]
        if folder not in others and TARGET in (text := path.read_text(encoding="utf-8")):
            node = yaml.load(text, Loader=SafeLoader)
            names = _names({folder: node} if folder in GROUPS else node)
            found |= {name for key, name in names if _place(key) == place}
    return found


def _place(key: str) -> str:
    """Return the place of a key: optimizer, task, `task.` for sections of a task, cell for those of a model."""
    group, dot, _ = key.replace("[", ".").partition(".")
    return CELL if group == CELL or (group == "model" and dot) else group + dot


def _names(config: Any) -> Iterator[tuple[str, Any]]:
    """Yield the keys and the names of all sections of a configuration, also of those that nothing reads."""
    for key, node in walk(config):
        if isinstance(node, dict) and TARGET in node:
            yield key or TARGET, node[TARGET]
            if isinstance(node.get(CELL), str) and str(node[TARGET]).startswith("gyral."):
                yield f"{key}.{CELL}", node[CELL]
