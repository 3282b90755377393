"""Standard output, piece by piece."""

import sys
from collections.abc import Iterable


def write(pieces: Iterable[str]) -> None:
    """Write text to standard output as it arrives; end the last line even if Ctrl-C interrupts it."""
    last = "\n"
    try:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
            last = piece or last
    finally:
        if not last.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()
