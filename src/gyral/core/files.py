"""Files that are written completely or not at all."""

import os
from collections.abc import Callable
from pathlib import Path


def replace_when_written(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` write a file beside `path` and move it there: the file is whole, or what it was before.

    Raises:
        OSError: it cannot be written; the unfinished file is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # torch leaves out which file it was
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all."""
    replace_when_written(path, lambda temporary: temporary.write_text(text))
