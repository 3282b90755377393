"""Consoles of rich: their colors and bars are control characters, and their texts have none. Imports no torch."""

import sys
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live as RichLive
from rich.progress import Progress as RichProgress
from rich.segment import Segment

from gyral.core.errors import printable
from gyral.core.streams import PrintableStream

UNBOUNDED = 1000  # characters of a line if the output is not a terminal


class Console(RichConsole):
    """A console that escapes control characters of texts, see `gyral.core.errors.printable`, and reads no markup.

    It takes the options of rich's console.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "highlight": False, "emoji": False, **options})

    @property
    def file(self) -> IO[str]:
        """The stream, which takes colors and movements of the cursor as they are."""
        file: Any = self._file or (sys.stderr if self.stderr else sys.stdout)
        while isinstance(file, PrintableStream | FileProxy):
            file = file.unescaped if isinstance(file, PrintableStream) else file.rich_proxied_file
        return file

    @file.setter
    def file(self, new_file: IO[str]) -> None:
        self._file = new_file

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render an object as segments whose texts have no control characters."""
        segments = [*super().render(renderable, options)]
        if "".join([part.text for part in segments if not part.control]).replace("\n", "").isprintable():
            return segments
        return [part if part.control else part._replace(text=printable(part.text)) for part in segments]


class Live(RichLive):
    """A view that is updated. What is printed meanwhile appears above it, without control characters."""

    def start(self, refresh: bool = False) -> None:
        super().start(refresh)
        _escape_redirected()


class Progress(RichProgress):
    """A line of progress. What is printed meanwhile appears above it, without control characters."""

    def start(self) -> None:
        super().start()
        _escape_redirected()


def _escape_redirected() -> None:
    """Escape the text of rich's streams, in which rich would interpret colors and links."""
    for name in ("stdout", "stderr"):
        if isinstance(getattr(sys, name), FileProxy):
            setattr(sys, name, PrintableStream(getattr(sys, name)))


def make_console(file: Any = None, width: int | None = None) -> Console:
    """Return a console for tables. If the output is not a terminal, its lines are as long as needed."""
    console = Console(file=file)
    if not console.is_terminal:
        console.width = width or UNBOUNDED
    return console
