"""The lines in the terminal about the jobs of a sweep: those that run, and how each ended. Imports no torch."""

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table

from gyral.core.console import Console, Live
from gyral.core.inputs import find_fault
from gyral.core.measures import Measure, main_measure, printed
from gyral.core.progress import BAR_WIDTH
from gyral.runs.directory import DONE, LOG, read_results
from gyral.runs.measures import read_measures
from gyral.sweeps.launchers.base import FinishedJob

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
    if find_fault(directory / LOG):  # such as a pipe, from which reading may never end
        return None
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


def name_of(overrides: Sequence[str], shared: Collection[str]) -> str:
    """Return the name of a job in the terminal: its overrides without those that all jobs of the sweep have."""
    return " ".join([override for override in overrides if override not in shared] or overrides)


def describe_outcome(finished: FinishedJob, name: str) -> str:
    """Return how a job with a name ended, in one line: its metrics, or its run directory with the reason of failure."""
    if finished.error:
        return f"FAILED {describe_failure(finished)}"
    state = "was DONE" if finished.was_done else "DONE"
    scores, monitor = [], str(finished.job.config.task.monitor)
    measures: Sequence[Measure] = ()
    if (finished.job.directory / DONE).is_file():
        results = read_results(finished.job.directory)
        measures = read_measures(finished.job.directory)[0]
        names = (main_measure(measures, results).name, monitor.partition("/")[2])  # the monitored one on both splits
        shown = {f"test/{name}": results.get(f"test/{name}") for name in names}
        scores += [_score(name, value, measures) for name, value in shown.items() if value is not None]
    if finished.value is not None:
        scores.append(_score(monitor, finished.value, measures))
    return f"{state} {name}: {', '.join(scores)}".removesuffix(": ")


def _score(metric: str, value: float, measures: Sequence[Measure]) -> str:
    """Return a metric as text, such as "test accuracy 87.5 %"."""
    split, _, name = metric.partition("/")
    label = next((measure.label for measure in measures if measure.name == name), name)
    return f"{split} {label} {printed(metric, value, measures)}"


def describe_failure(finished: FinishedJob) -> str:
    """Return the run directory of a failed job and the reason of the failure."""
    return f"{finished.job.name}: {str(finished.error).removeprefix(f'{finished.job.directory}: ')}"
