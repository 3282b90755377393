"""Subjects that a memory is applied to, one folder each.

Nothing outside imports an application, and applications do not import each other, so that each folder can be deleted.
Most of what they offer belongs to their own tasks. An application that studies the models of other tasks, as the probes
of language models do, offers it in its `__init__.py`, by a function that takes the class of the task and returns what
the method of `Task` returns: `further_evaluations(task)`, `further_figures(task)` or `further_generators(task)`.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gyral.tasks.base import Task


def offers(kind: str, task: "type[Task]") -> dict[str, Callable[..., Any]]:
    """Return what a task and all applications offer for its runs, by name.

    Args:
        kind: "generators", "evaluations" or "figures".
        task: the class of the task.
    """
    found = dict(getattr(task, kind)())
    for folder in iter_modules(__path__):
        further = getattr(import_module(f"{__name__}.{folder.name}"), f"further_{kind}", None)
        found |= further(task) if further is not None else {}
    return found
