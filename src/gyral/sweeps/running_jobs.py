"""The lines in the terminal that show the running jobs of a sweep. Imports no torch."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table

from gyral.core.console import Console, Live
from gyral.core.progress import BAR_WIDTH
from gyral.runs.directory import LOG

SHOWN = 12  # jobs that have a line
TAIL = 2000  # bytes at the end of a log, in which its last message of progress is
MESSAGE = re.compile(r"step ([\d,]+) of ([\d,]+): (.*)")  # of `gyral.training.callbacks.progress_bar`


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        step: number of steps taken.
        steps: number of steps of the run.
        values: the latest losses and scores, and the time left.
    """

    step: int
    steps: int
    values: str


def read_progress(directory: Path) -> Progress | None:
    """Return how far a run is by its log, None before its first validation."""
    try:
        with (directory / LOG).open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    if not (found := MESSAGE.findall(text)):
        return None
    step, steps, values = found[-1]
    return Progress(int(step.replace(",", "")), int(steps.replace(",", "")), values)


@contextmanager
def show_running_jobs(running: Callable[[], Mapping[str, Path]], summary: Callable[[], str]) -> Iterator[None]:
    """Show the jobs that run in this context, one a line, if the standard error stream is a terminal.

    Args:
        running: returns the directories of the running jobs by name.
        summary: returns the line above them.
    """
    if not sys.stderr.isatty():
        yield
        return

    def lines() -> Group:
        jobs, table = running(), Table.grid(padding=(0, 1))
        table.add_column(no_wrap=True, ratio=2)
        table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, ratio=3)
        for name, directory in [*jobs.items()][:SHOWN]:
            now = read_progress(directory)
            bar = ProgressBar(total=now.steps if now else 1, completed=now.step if now else 0, width=BAR_WIDTH)
            table.add_row(name, bar, now.values if now else "starts")
        others = [f"and {len(jobs) - SHOWN} others"] if len(jobs) > SHOWN else []
        return Group(summary(), table, *others)

    with Live(get_renderable=lines, console=Console(stderr=True), refresh_per_second=1, transient=True):
        yield
