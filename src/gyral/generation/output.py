"""Standard output, piece by piece."""

import os
import sys
from collections.abc import Iterable


def write(pieces: Iterable[str]) -> None:
    """Write text to standard output as it arrives; end the last line even if Ctrl-C interrupts it.

    Raises:
        OSError: standard output cannot be written, such as a file on a full disk.
    """
    last = "\n"
    try:
        try:
            for piece in pieces:
                sys.stdout.write(piece)
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
