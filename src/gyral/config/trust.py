"""The classes and functions that the configuration in a run directory may name. Imports no torch.

A run directory may come from somebody else. Its configuration names classes and functions (`_target_`) that are
imported and called, so that any name would be any code. By default only these are allowed, each in its own section:

* the names in Gyral's own conf/;
* the optimizers and schedules of torch, and its recurrent cells for the cell `external`;
* names in modules that the user lets in by `trust=<module>`.

Configurations that are composed from conf/ and the command line are the user's own words, and are not checked.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]
from hydra.utils import get_object
from omegaconf import ListConfig

from gyral.config.groups import CONFIG_PATH
from gyral.config.resolvers import RUN_CONFIG
from gyral.core.errors import OptionError

TARGET = "_target_"
CELLS = "cell"  # the group of the sections inside of a model
GROUPS = ("model", CELLS, "task", "optimizer", "scheduler", "trainer", "callbacks", "logger")
# modules of torch whose public classes sections may name, and the base class of these
TORCH = {
    "optimizer": ("torch.optim", "Optimizer"),
    "scheduler": ("torch.optim.lr_scheduler", "LRScheduler"),
    CELLS: ("torch.nn", "RNNCellBase"),
}
NEVER_TRUSTED = {*sys.stdlib_module_names, "gyral", "hydra_plugins"}
DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
INTERPOLATION = re.compile(r"(?<!\\)(\\\\)*\$\{")


class Name(NamedTuple):
    """A class or function that a configuration names.

    Attributes:
        value: its dotted name, if the configuration is as it should be.
        key: key of the section, or of the option of a section, that names it.
        group: the group of conf/ with the names that are allowed there.
    """

    value: Any
    key: str
    group: str

    @property
    def package(self) -> str:
        return str(self.value).partition(".")[0]


class Allowed(NamedTuple):
    """The names in Gyral's own conf/.

    Attributes:
        names: for each group and depth, 0 for the group's own section and 1 for those inside, the allowed names.
        options: pairs of a name and an option of it whose value is a dotted name, too, as `cell` of an external cell.
    """

    names: dict[tuple[str, int], set[str]]
    options: set[tuple[str, str]]


def check_names(config: dict[str, Any], option: str, directory: Path, trust: Any = None) -> None:
    """Check that the saved configuration of a run directory names only what is allowed, before anything is imported.

    Args:
        config: the configuration, as plain containers.
        option: the option that gives the run directory, such as resume.
        directory: the run directory.
        trust: the option `trust`: a module, or a list of modules.

    Raises:
        OptionError: a name that is not allowed, an interpolation, or modules that cannot be trusted.
    """
    trusted = trusted_modules(trust)
    for key, value in _texts(config):
        if INTERPOLATION.search(value):
            raise OptionError(option, directory, f"{RUN_CONFIG} has an interpolation, {key}={value}; runs save values")
    foreign = [name for name in _names(config) if not _is_allowed(name)]
    for name in foreign:
        if not _can_be_trusted(name):
            reason = f"{RUN_CONFIG} names {name.value} ({name.key}), which the configuration of a run must not name"
            raise OptionError(option, directory, reason)
    untrusted = [name for name in foreign if not _is_in(str(name.value), trusted)]
    if untrusted:
        first, words = untrusted[0], trust_word([*trusted, *(name.package for name in untrusted)])
        reason = f"{RUN_CONFIG} names {first.value} ({first.key}), which is not part of Gyral"
        raise OptionError(option, directory, f"{reason}; write {words} if you trust its author and the run's")
    for name in foreign:
        _check_origin(name, option, directory, trusted)


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
        if module.partition(".")[0] in NEVER_TRUSTED:
            raise OptionError("trust", module, "must be a module of your own or of another package")
    return modules


def trust_word(modules: list[str]) -> str:
    """Return the word trust=<modules> of the command line."""
    unique = list(dict.fromkeys(modules))
    return f"trust={unique[0]}" if len(unique) == 1 else f"trust=[{','.join(unique)}]"


def trust_words(config: dict[str, Any]) -> list[str]:
    """Return what a command needs besides the run directory to use a run: the word trust=<modules>, or nothing.

    Args:
        config: the configuration of the run, as plain containers.
    """
    foreign = [name for name in _names(config) if not _is_allowed(name) and _can_be_trusted(name)]
    return [trust_word([name.package for name in foreign])] if foreign else []


def known_names() -> list[str]:
    """Return all names in Gyral's own conf/."""
    return sorted({name for names in _allowed().names.values() for name in names})


def _check_origin(name: Name, option: str, directory: Path, trusted: tuple[str, ...]) -> None:
    """Check that a name in a trusted module is that of an object which a trusted module defines: `my_cells.os.system`
    is not.
    """
    try:
        found = get_object(str(name.value))
    except Exception as error:  # importing a module may raise anything
        reason = f"{RUN_CONFIG} names {name.value} ({name.key}), which cannot be imported: {error.__cause__ or error}"
        raise OptionError(option, directory, " ".join(reason.split())) from error
    origin = f"{getattr(found, '__module__', type(found).__module__)}.{getattr(found, '__qualname__', '')}"
    if not _is_in(origin, trusted):
        reason = f"{RUN_CONFIG} names {name.value} ({name.key}), which is {origin.rstrip('.')}"
        raise OptionError(option, directory, f"{reason}, of a module that trust= does not name")


def _is_allowed(name: Name) -> bool:
    depth = 0 if name.key == name.group or name.group == CELLS else 1
    if not isinstance(name.value, str):
        return False
    if name.value in _allowed().names.get((name.group, depth), ()):
        return True
    module, _, attribute = name.value.rpartition(".")
    if name.group not in TORCH or depth or module != TORCH[name.group][0] or attribute.startswith("_"):
        return False
    found = getattr(import_module(module), attribute, None)
    return isclass(found) and issubclass(found, getattr(import_module(module), TORCH[name.group][1]))


def _can_be_trusted(name: Name) -> bool:
    """Return whether a name may be allowed by `trust=`: a dotted name in a module of the user or of a package."""
    is_name = isinstance(name.value, str) and DOTTED_NAME.fullmatch(name.value) and "." in name.value
    return bool(is_name) and name.package not in NEVER_TRUSTED


def _is_in(name: str, modules: tuple[str, ...]) -> bool:
    return any(name.startswith(f"{module}.") for module in modules)


def _names(node: Any, key: str = "", group: str = "") -> Iterator[Name]:
    """Yield all names in a configuration, in lists and in sections that nothing reads, too."""
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _names(item, f"{key}[{index}]", group)
    if not isinstance(node, dict):
        return
    for name, value in node.items():
        inside = f"{key}.{name}" if key else str(name)
        if name == TARGET:
            yield Name(value, key or TARGET, group)
        elif isinstance(value, str) and (node.get(TARGET), name) in _allowed().options:
            yield Name(value, inside, group)
        else:
            yield from _names(value, inside, CELLS if group == "model" else group or str(name))


def _texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts in a configuration with their keys."""
    if isinstance(node, str):
        yield key, node
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _texts(item, f"{key}[{index}]")
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _texts(value, f"{key}.{name}" if key else str(name))


@cache
def _allowed() -> Allowed:
    """Return the names in Gyral's own conf/; a folder conf/ of the user is not searched."""
    allowed = Allowed({}, set())
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former is fast
    for path in sorted(Path(CONFIG_PATH).rglob("*.yaml")):
        node = yaml.load(path.read_text(), Loader=loader)
        folder = path.relative_to(CONFIG_PATH).parts[0]
        for section, key in _sections({folder: node} if folder in GROUPS else node):
            group, depth = key.split(".")[0], int("." in key)
            if group not in GROUPS:
                continue  # Hydra's own section, which run directories do not save
            place = (CELLS, 0) if group == CELLS or (group == "model" and depth) else (group, depth)
            allowed.names.setdefault(place, set()).add(section[TARGET])
            for option, value in section.items():
                if option != TARGET and isinstance(value, str) and "." in value and DOTTED_NAME.fullmatch(value):
                    allowed.options.add((section[TARGET], option))
    return allowed


def _sections(node: Any, key: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield all sections with a name of a file of conf/, with their keys."""
    if isinstance(node, dict):
        if TARGET in node:
            yield node, key
        for name, value in node.items():
            yield from _sections(value, f"{key}.{name}" if key else str(name))
