"""Probes of language models: trees from their gates, and minimal pairs of sentences."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gyral.tasks.base import Task


def further_evaluations(task: "type[Task]") -> dict[str, str]:
    """Return the probes for the runs of a task, as `evaluations` of `gyral.tasks.base.Task`."""
    from gyral.tasks.text import TextTask

    if not issubclass(task, TextTask):
        return {}
    commands = "gyral.applications.probes.command"
    return {"parse": f"{commands}.probe_trees", "pairs": f"{commands}.probe_pairs"}


def further_figures(task: "type[Task]") -> dict[str, str]:
    """Return the figures for the runs of a task, as `figures` of `gyral.tasks.base.Task`."""
    from gyral.tasks.text import TextTask

    return {"parse": "gyral.applications.probes.figure.parse"} if issubclass(task, TextTask) else {}
