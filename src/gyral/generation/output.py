"""Standard output, piece by piece."""

import os
import sys
from collections.abc import Iterable

from gyral.core.escaping import printable


class Styled(str):
    """Text with control characters of our own, such as colors."""


def write(pieces: Iterable[str]) -> None:
    """Write text to standard output as it arrives; end the last line even if Ctrl-C interrupts it.

    A terminal gets control characters as escapes, except those of `Styled`; a file gets the text as it is.

    Raises:
        OSError: standard output cannot be written, such as a file on a full disk.
    """
    last, is_terminal = "\n", sys.stdout.isatty()
    try:
        try:
            for piece in pieces:
                sys.stdout.write(printable(piece) if is_terminal and not isinstance(piece, Styled) else piece)
                sys.stdout.flush()
                last = piece or last
        finally:
            if not last.endswith("\n"):
                sys.stdout.write("\n")
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:  # not of standard output
            raise
        # Python would report the error again when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # else the reader has closed the pipe, as `head` does
            raise OSError(error.errno, error.strerror, "standard output") from None
