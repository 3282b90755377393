"""The classes and functions that the configuration in a run directory may name. Imports no torch.

A run directory may come from somebody else. Its configuration names classes and functions (`_target_`) that are
imported and called, so that any name would be any code. By default only these are allowed, each in its own section:

* the names in Gyral's own conf/, exactly;
* the optimizers and schedules of torch, and its recurrent cells for the cell `external`: public subclasses of a base;
* names in modules that the user lets in by `trust=<module>`, if these modules define them.

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
# the groups whose sections have names; a place is one of them, or with a dot the sections inside of its section
GROUPS = ("model", "cell", "task", "optimizer", "scheduler", "trainer", "callbacks", "logger")
# by place, a module of torch and the base class of its classes that may be named there
TORCH = {
    "optimizer": ("torch.optim", "Optimizer"),
    "scheduler": ("torch.optim.lr_scheduler", "LRScheduler"),
    "cell": ("torch.nn", "RNNCellBase"),
}
NEVER_TRUSTED = {*sys.stdlib_module_names, "gyral", "hydra_plugins"}
DOTTED_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
INTERPOLATION = re.compile(r"(?<!\\)(\\\\)*\$\{")


class Allowed(NamedTuple):
    """The names in Gyral's own conf/.

    Attributes:
        names: pairs of a place and a name.
        options: pairs of a name and an option of it whose value is a dotted name, too, as `cell` of an external cell.
    """

    names: set[tuple[str, str]]
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

    def refuse(key: str, value: Any, reason: str) -> OptionError:
        return OptionError(option, directory, f"{RUN_CONFIG} names {value} ({key}), which {reason}")

    trusted = trusted_modules(trust)
    for key, value in _values(config):
        if isinstance(value, str) and INTERPOLATION.search(value):
            raise OptionError(option, directory, f"{RUN_CONFIG} has an interpolation, {key}={value}; runs save values")
    foreign = _foreign_names(config)
    for key, value in foreign:
        if not _can_be_trusted(value):
            raise refuse(key, value, "the configuration of a run must not name")
    untrusted = [(key, value) for key, value in foreign if not _is_in(value, trusted)]
    if untrusted:
        words = _trust_word([*trusted, *(_package(value) for _, value in untrusted)])
        raise refuse(*untrusted[0], f"is not part of Gyral; write {words} if you trust its author and the run's")
    for key, value in foreign:
        try:
            found = get_object(value)
        except Exception as error:  # importing a module may raise anything
            reason = " ".join(f"cannot be imported: {error.__cause__ or error}".split())
            raise refuse(key, value, reason) from error
        origin = f"{getattr(found, '__module__', type(found).__module__)}.{getattr(found, '__qualname__', '')}"
        if not _is_in(origin, trusted):  # `my_cells.os.system`
            raise refuse(key, value, f"is {origin.rstrip('.')}, of a module that trust= does not name")


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
            raise OptionError("trust", module, "must be a module of your own or of another package")
    return modules


def trust_words(config: dict[str, Any]) -> list[str]:
    """Return what a command needs besides the run directory to use a run: the word trust=<modules>, or nothing.

    Args:
        config: the configuration of the run, as plain containers.
    """
    packages = [_package(name) for _, name in _foreign_names(config) if _can_be_trusted(name)]
    return [_trust_word(packages)] if packages else []


def known_names() -> list[str]:
    """Return all names in Gyral's own conf/."""
    return sorted({name for _, name in _allowed().names})


def _trust_word(modules: list[str]) -> str:
    unique = list(dict.fromkeys(modules))
    return f"trust={unique[0]}" if len(unique) == 1 else f"trust=[{','.join(unique)}]"


def _package(name: str) -> str:
    return name.partition(".")[0]


def _is_in(name: str, modules: tuple[str, ...]) -> bool:
    return any(name.startswith(f"{module}.") for module in modules)


def _can_be_trusted(name: Any) -> bool:
    """Return whether a name may be allowed by `trust=`: a dotted name in a module of the user or of a package."""
    is_name = isinstance(name, str) and DOTTED_NAME.fullmatch(name) and "." in name
    return bool(is_name) and _package(name) not in NEVER_TRUSTED


def _foreign_names(config: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the keys and names in a configuration that are not allowed by default, also in sections nothing reads."""
    names: list[tuple[str, Any]] = []
    for key, section in _values(config):
        if isinstance(section, dict) and TARGET in section:
            target = section[TARGET]
            named = {name: value for name, value in section.items() if (str(target), name) in _allowed().options}
            names.append((key or TARGET, target))
            names += [(f"{key}.{name}", value) for name, value in named.items() if isinstance(value, str)]
    return [(key, name) for key, name in names if not _is_allowed(key, name)]


def _is_allowed(key: str, name: Any) -> bool:
    place = _place(key)
    if not isinstance(name, str):
        return False
    if (place, name) in _allowed().names:
        return True
    module, _, attribute = name.rpartition(".")
    if place not in TORCH or module != TORCH[place][0] or attribute.startswith("_"):
        return False
    found, base = (getattr(import_module(module), each, None) for each in (attribute, TORCH[place][1]))
    return isclass(found) and isclass(base) and issubclass(found, base)


def _place(key: str) -> str:
    """Return the place of a key: optimizer, task, `task.` for sections of a task, cell for those of a model."""
    group, dot, _ = key.replace("[", ".").partition(".")
    return "cell" if group == "cell" or (group == "model" and dot) else group + dot


def _values(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield all values of nested containers with their keys, outer ones first."""
    yield key, node
    if isinstance(node, list):
        for index, item in enumerate(node):
            yield from _values(item, f"{key}[{index}]")
    elif isinstance(node, dict):
        for name, value in node.items():
            yield from _values(value, f"{key}.{name}" if key else str(name))


@cache
def _allowed() -> Allowed:
    """Return the names in Gyral's own conf/; a folder conf/ of the user is not searched."""
    allowed = Allowed(set(), set())
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former is fast
    for path in sorted(Path(CONFIG_PATH).rglob("*.yaml")):
        node, folder = yaml.load(path.read_text(), Loader=loader), path.relative_to(CONFIG_PATH).parts[0]
        for key, section in _values({folder: node} if folder in GROUPS else node):
            place = _place(key)
            if not isinstance(section, dict) or TARGET not in section or place.rstrip(".") not in GROUPS:
                continue  # Hydra's own section, which run directories do not save, is of no group
            allowed.names.add((place, section[TARGET]))
            for option, value in section.items():
                if option != TARGET and isinstance(value, str) and "." in value and DOTTED_NAME.fullmatch(value):
                    allowed.options.add((section[TARGET], option))
    return allowed
