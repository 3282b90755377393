"""Data of single tasks for the suites that run on every task.

A suite such as the contract of tasks takes its cases from conf/task. What it has to know about a task, beside the
tiny example that the class of its data names, is in the test module of the task: tests/tasks/test_<module>.py, or
tests/applications/<application>/small.py for the tasks of an application. Only this module imports these, so a task can
be removed with its test, and an application with its folder.
"""

import functools
import importlib.util
import pkgutil
from types import ModuleType
from typing import Any

import tests.applications
from gyral.config import signatures
from gyral.config.plain import flatten


@functools.cache
def modules(name: str = "small") -> tuple[ModuleType, ...]:
    """Return the modules of this name that the folders in tests/applications have."""
    parent = tests.applications.__name__
    folders = [f"{parent}.{found.name}" for found in pkgutil.iter_modules(tests.applications.__path__) if found.ispkg]
    return tuple(importlib.import_module(f"{folder}.{name}") for folder in folders if has_module(folder, name))


def has_module(folder: str, name: str) -> bool:
    """Return whether a package has a module of this name."""
    return importlib.util.find_spec(f"{folder}.{name}") is not None


def offered(name: str, module: str = "small") -> dict[str, Any]:
    """Return the entries of all dictionaries of this name."""
    return {key: value for found in modules(module) for key, value in getattr(found, name, {}).items()}


@functools.cache
def module_of(target: str) -> ModuleType | None:
    """Return the test module of the class with a dotted name, None without one."""
    *_, module, _ = names = target.split(".")
    is_of_application = target.startswith("gyral.applications.")
    folder, name = (f"applications.{names[2]}", "small") if is_of_application else ("tasks", f"test_{module}")
    return importlib.import_module(f"tests.{folder}.{name}") if has_module(f"tests.{folder}", name) else None


def offered_to(target: str, name: str, task: str = "") -> dict[str, Any]:
    """Return the entries of the dictionary of this name in the test module of a class, or none.

    Args:
        target: dotted name of the class.
        name: name of the dictionary.
        task: a task of this class. A key "<task>.<option>" is for this task and has priority over "<option>".
    """
    entries: dict[str, Any] = getattr(module_of(target), name, {})
    own = {key.removeprefix(f"{task}."): value for key, value in entries.items() if key.startswith(f"{task}.")}
    return {**entries, **own} if task else entries


def small_options(choice: Any, task: str = "") -> dict[str, Any]:
    """Return the options of the tiny example of a task, and those that its tests need, by their dotted names.

    Args:
        choice: the options of the task, of which those that it does not have are left out.
        task: see `offered_to`. `OPTIONS` are the options that the tests need, such as files.
    """
    target, names = choice["_target_"], dict(flatten(choice))
    options = dict(flatten(signatures.small_options(target))) | offered_to(target, "OPTIONS", task)
    return {name: value for name, value in options.items() if name in names}


def listed(name: str, module: str = "small") -> list[Any]:
    """Return the entries of all tuples of this name."""
    return [entry for found in modules(module) for entry in getattr(found, name, ())]


def first(name: str, *arguments: Any) -> Any:
    """Return the first result of the functions of this name that is not None, or None."""
    results = (getattr(found, name)(*arguments) for found in modules() if hasattr(found, name))
    return next((result for result in results if result is not None), None)
