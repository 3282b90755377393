"""Standard output, piece by piece."""

import os
import stat
import sys
from collections.abc import Iterable
from typing import Any

from gyral.core.errors import printable
from gyral.core.streams import unescaped


class Styled(str):
    """Text with control characters of our own, such as colors."""


def write(pieces: Iterable[str]) -> None:
    """Write text to standard output as it arrives; end the last line even if Ctrl-C interrupts it.

    Control characters are escaped, except in `Styled` text, on a terminal and in a pipe, whose reader may print to one.
    A file gets the text unchanged.
    """
    last, stream = "\n", unescaped(sys.stdout)
    is_shown = stream.isatty() or _is_pipe(stream)
    try:
        for piece in pieces:
            stream.write(printable(piece) if is_shown and not isinstance(piece, Styled) else piece)
            stream.flush()
            last = piece or last
    finally:
        if not last.endswith("\n"):
            stream.write("\n")
            stream.flush()


def _is_pipe(stream: Any) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):  # it has no descriptor, as in a notebook
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
