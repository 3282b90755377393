"""Atomic writing of files."""

import os
from collections.abc import Callable
from pathlib import Path


def replace_when_written(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder and move it to `path`, so that `path` is never incomplete.

    Args:
        path: path of the file; its folder is created if necessary.
        write: writes the file at the path that it is called with.

    Raises:
        OSError: the file cannot be written; the temporary file is removed and `path` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # errors of torch lack the file name
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file completely or not at all."""
    replace_when_written(path, lambda temporary: temporary.write_text(text))
