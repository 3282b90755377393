"""The line in the terminal that shows what a run does, and log messages that respect it. Imports no torch."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gyral.core.errors import printable

REFRESH_RATE = 4  # redraws per second
BAR_WIDTH = 14  # characters


class ProgressLine:
    """One line at the bottom of the terminal: what a run does, how far it is, and the time left.

    The line disappears when the run ends. Outside a terminal nothing is shown.
    """

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None

    @property
    def is_shown(self) -> bool:
        return self._progress is not None

    @contextmanager
    def show(self, description: str) -> Iterator[None]:
        """Show the line in this context, if the standard error stream is a terminal."""
        if self.is_shown or not sys.stderr.isatty():
            yield
            return
        from rich.progress import BarColumn, TextColumn

        from gyral.core.console import Console, Progress

        console = Console(stderr=True, soft_wrap=True)  # paths in messages above the line are not folded
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(BAR_WIDTH),
            TextColumn("{task.fields[count]}", markup=False),
            TextColumn("{task.fields[values]}", markup=False),
            _time_column(),
        )
        with Progress(*columns, console=console, refresh_per_second=REFRESH_RATE, transient=True) as self._progress:
            self._task = self._progress.add_task(description, total=None, count="", values="", left=None)
            try:
                yield
            finally:
                self._progress = None

    def begin(self, description: str, total: int | None = None) -> None:
        """Show another activity, which takes `total` steps; None: their number is unknown."""
        if self.is_shown:
            self._progress.reset(self._task, description=description, total=total, count="", values="", left=None)

    def update(self, completed: int, total: int, values: str = "", left: float | None = None) -> None:
        """Show the number of completed steps, the latest values, and the seconds left if more than steps follow."""
        if self.is_shown:
            count = f"{completed:,}/{total:,}"
            self._progress.update(self._task, completed=completed, total=total, count=count, values=values, left=left)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Remove the line in this context, in which another bar is shown."""
        if not self.is_shown:
            yield
            return
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()

    @contextmanager
    def describe(self, description: str) -> Iterator[None]:
        """Show another description in this context, such as an interruption of training."""
        if not self.is_shown:
            yield
            return
        [task] = self._progress.tasks
        previous = task.description
        self._progress.update(self._task, description=description)
        try:
            yield
        finally:
            if self.is_shown:
                self._progress.update(self._task, description=previous)


def _time_column() -> Any:
    """Return the last column: the time left, or the elapsed time if the number of steps is unknown."""
    from rich.progress import ProgressColumn, Task
    from rich.table import Column
    from rich.text import Text

    class TimeColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            if task.total is None:
                return Text(format_seconds(task.elapsed or 0))
            given = task.fields.get("left")
            left = task.time_remaining if given is None else given
            return Text("" if left is None else f"{format_seconds(left)} left")

    return TimeColumn(table_column=Column(no_wrap=True))


def format_seconds(seconds: float) -> str:
    """Return a duration as minutes and seconds, 1:05, or with hours, 2:01:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


line = ProgressLine()
PROGRESS = {"is_progress": True}


class ConsoleHandler(logging.Handler):
    """Prints log messages to the current standard error stream, which is above the progress line if there is one.

    `logging.StreamHandler` would keep the stream that it was created with, and write into the line. Messages with
    `extra=PROGRESS` report what the line shows and are printed only if it is not shown; those with `is_expected` are in
    train.log alone. Control characters, which a corpus may have, are escaped.

    Args:
        stream: not used; Hydra's default configuration of this handler passes one.
    """

    def __init__(self, stream: Any = None) -> None:
        super().__init__()

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_expected", False) or (line.is_shown and getattr(record, "is_progress", False)):
            return
        try:
            print(printable(self.format(record)), file=sys.stderr, flush=True)
        except Exception:  # as in the handlers of the standard library
            self.handleError(record)


class LogFile(logging.FileHandler):
    """Appends log messages to a file, without control characters: users print the file in a terminal.

    Args:
        path: the file, which the first message creates.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True, encoding="utf-8", errors="backslashreplace")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
