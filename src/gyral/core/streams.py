"""Standard streams: without control characters of others, closed, or without a reader. Imports no torch."""

import io
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from gyral.core.errors import UserError, printable

FAILED = 1
CLOSED = 141  # 128 + SIGPIPE, as shells count: the reader has closed the pipe, as `head` does


class PrintableStream:
    """A stream of text that escapes control characters, see `gyral.core.errors.printable`.

    All that a command prints goes through it: names of files, data, options, errors, warnings and tracebacks.
    `gyral.core.console`, which draws with control characters, writes to `unescaped`.

    Attributes:
        unescaped: The stream to which it writes.
    """

    def __init__(self, unescaped: Any) -> None:
        self.unescaped = unescaped

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        self.unescaped.write(printable(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __iter__(self) -> Any:
        return iter(self.unescaped)

    def __getattr__(self, name: str) -> Any:
        if name == "unescaped":  # while it is copied
            raise AttributeError(name)
        return getattr(self.unescaped, name)


def unescaped(stream: Any) -> Any:
    """Return the stream to which control characters of our own are written."""
    return stream.unescaped if isinstance(stream, PrintableStream) else stream


def escape_streams() -> None:
    """Let standard output and standard error of this process escape control characters, see `PrintableStream`."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, PrintableStream):
            setattr(sys, name, PrintableStream(stream))


def fail(message: str) -> NoReturn:
    """End the process with one line on standard error."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(FAILED)


def open_streams() -> None:
    r"""Prepare the standard streams for what a command writes.

    The null device takes the place of streams that are closed. Otherwise the next file that is opened would be the
    standard error stream, and messages would be written into it. Characters that the locale's encoding lacks are
    written as escapes, such as \u5929, and do not raise an error. So are control characters.

    Raises:
        UserError: Standard output is closed.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # returns the lowest number that is free
    is_closed = sys.stdout is None
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open as long as the process)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    escape_streams()
    if is_closed:
        raise UserError("standard output: is closed")


def check_directory() -> None:
    """Check that the current directory exists.

    Raises:
        UserError: It has been removed.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("current directory: has been removed; change to another one") from None


def finish_output(more: str = "") -> None:
    """Write the buffer of standard output; end the process if that fails, silently if nobody reads it.

    Args:
        more: A text to write after it, to find out whether standard output can be written.
    """
    try:
        sys.stdout.write(more)
        sys.stdout.flush()
    except BrokenPipeError:
        end_without_reader()
    except OSError as error:
        _discard_output()
        fail(f"standard output: {error.strerror}")


def end_without_reader() -> NoReturn:
    """End the process without a message: the reader of standard output has closed the pipe."""
    _discard_output()
    sys.exit(CLOSED)


def _discard_output() -> None:
    """Let standard output end nowhere, or Python would report the error again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
