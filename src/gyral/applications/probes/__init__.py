"""Probes of language models: trees from their gates, and minimal pairs of sentences."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gyral.tasks.base import Task


def further_evaluations(task: "type[Task]") -> dict[str, Callable[..., Any]]:
    """Return the probes for the runs of a task, see `gyral.tasks.base.Task.evaluations`."""
    from gyral.tasks.text import TextTask

    if not issubclass(task, TextTask):
        return {}
    from gyral.applications.probes.command import probe_pairs, probe_trees

    return {"parse": probe_trees, "pairs": probe_pairs}


def further_figures(task: "type[Task]") -> dict[str, Callable[..., Any]]:
    """Return the figures for the runs of a task, see `gyral.tasks.base.Task.figures`."""
    from gyral.tasks.text import TextTask

    if not issubclass(task, TextTask):
        return {}
    from gyral.applications.probes.figure import parse

    return {"parse": parse}
