"""Standard output, piece by piece."""

import sys
from collections.abc import Iterable

from gyral.core.errors import printable


class Styled(str):
    """Text with control characters of our own, such as colors."""


def write(pieces: Iterable[str]) -> None:
    """Write text to standard output as it arrives; end the last line even if Ctrl-C interrupts it.

    On a terminal, control characters are escaped, except in `Styled` text. A file gets the text unchanged.
    """
    last, is_terminal = "\n", sys.stdout.isatty()
    try:
        for piece in pieces:
            sys.stdout.write(printable(piece) if is_terminal and not isinstance(piece, Styled) else piece)
            sys.stdout.flush()
            last = piece or last
    finally:
        if not last.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()
