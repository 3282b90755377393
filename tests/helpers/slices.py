"""Data of the applications for the suites that run on every task.

A suite such as the contract of tasks takes its cases from conf/task. The module
tests/applications/<application>/small.py contains the data for the tasks of an application. Only this module imports
it, so an application can be removed with its folder.
"""

import functools
import importlib.util
import pkgutil
from types import ModuleType
from typing import Any

import tests.applications


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


def offered_to(target: str, name: str) -> dict[str, Any]:
    """Return the entries of the dictionary of this name of the application that a `_target_` belongs to, or none."""
    return {
        key: value
        for found in modules()
        if target.startswith(f"gyral.applications.{found.__name__.split('.')[-2]}.")
        for key, value in getattr(found, name, {}).items()
    }


def listed(name: str, module: str = "small") -> list[Any]:
    """Return the entries of all tuples of this name."""
    return [entry for found in modules(module) for entry in getattr(found, name, ())]


def first(name: str, *arguments: Any) -> Any:
    """Return the first result of the functions of this name that is not None, or None."""
    results = (getattr(found, name)(*arguments) for found in modules() if hasattr(found, name))
    return next((result for result in results if result is not None), None)
