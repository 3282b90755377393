"""Text files, as they are or packed with gzip: in place of a file that does not exist, the one with .gz is read."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gyral.core.errors import OptionError
from gyral.core.inputs import decode, open_input


def find_file(path: Path) -> Path | None:
    """Return a path or, where it does not exist, the path with .gz at its end. None: neither exists."""
    packed = path.with_name(f"{path.name}.gz")
    return next((found for found in (path, packed) if found.exists()), None)


@contextmanager
def open_packed(option: str, value: Any, path: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file for reading bytes, which are unpacked if its name ends in .gz.

    Args:
        option: the option that names the file.
        value: its value.
        path: the file.

    Raises:
        OptionError: the file cannot be read, or is not a complete gzip file.
    """
    found = find_file(path) or path
    with open_input(option, value, found) as file:
        try:
            yield gzip.GzipFile(fileobj=file) if found.suffix == ".gz" else file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OptionError(option, value, f"{found}: is not a complete gzip file ({error})") from None


def read_lines(option: str, value: Any, path: Path) -> list[str]:
    """Return the lines of a text file. It takes the arguments of `open_packed`.

    Raises:
        OptionError: the file cannot be read, is not a complete gzip file, or is not UTF-8.
    """
    with open_packed(option, value, path) as file:
        content = file.read()
    try:
        text = io.StringIO(decode(content), newline=None).read()
    except UnicodeDecodeError as error:
        raise OptionError(option, value, f"{path}: is not UTF-8: {error.reason}") from None
    return text.removesuffix("\n").split("\n")
