"""Text files, as they are or packed with gzip: in place of a file that does not exist, the one with .gz is read."""

from pathlib import Path
from typing import Any

from gyral.core.inputs import read_text


def find_file(path: Path) -> Path | None:
    """Return a path or, where it does not exist, the path with .gz at its end. None: neither exists."""
    packed = path.with_name(f"{path.name}.gz")
    return next((found for found in (path, packed) if found.exists()), None)


def read_lines(option: str, value: Any, path: Path) -> list[str]:
    """Return the lines of a text file.

    Args:
        option: the option that names the file.
        value: its value.
        path: the file.

    Raises:
        OptionError: the file cannot be read, is not a complete gzip file, or is not UTF-8.
    """
    return read_text(option, value, find_file(path) or path).removesuffix("\n").split("\n")
