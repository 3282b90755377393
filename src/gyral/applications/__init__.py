"""Subjects that a memory is applied to, one folder each.

Nothing outside imports an application, and applications do not import each other, so that each folder can be deleted.
The tasks of an application offer most of its figures and commands. An application for the models of other tasks, such
as the probes of language models, has functions in its `__init__.py` that take the class of a task and return what the
attribute of `Task` would be: `further_evaluations(task)`, `further_figures(task)` or `further_generators(task)`.
"""

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from gyral.config.offers import find_functions

if TYPE_CHECKING:
    from gyral.tasks.base import Task


def offers(kind: str, task: "type[Task]") -> dict[str, Callable[..., Any]]:
    """Return the functions of a kind that a task and all applications offer for its runs, by name.

    Args:
        kind: "generators", "evaluations" or "figures".
        task: the class of the task.

    Raises:
        UserError: a function cannot be imported.
    """
    named = dict(getattr(task, kind))
    for folder in iter_modules(__path__):
        further = getattr(import_module(f"{__name__}.{folder.name}"), f"further_{kind}", None)
        named |= further(task) if further is not None else {}
    return find_functions(named)
