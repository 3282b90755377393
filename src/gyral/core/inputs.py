"""Files that the user names as inputs."""

import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gyral.core.errors import OptionError

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


@contextmanager
def check_readable(option: str, value: Any, file: Path | None = None) -> Iterator[None]:
    """Check that a file can be read; operating system errors within the context name the option and the file.

    Args:
        option: the option that names the file.
        value: its value.
        file: path of the file. None: the value is the path.

    Raises:
        OptionError: the file cannot be read. Named pipes and devices are refused, because reads may block forever.
    """
    path = Path(value) if file is None else file
    place = "" if str(path) == str(value) else f"{path}: "
    fault = find_fault(path)
    if fault is not None:
        raise OptionError(option, value, f"{place}{fault}")
    try:
        yield
    except OSError as error:
        raise OptionError(option, value, f"{place}cannot be read ({error.strerror or error})") from None


def find_fault(path: Path) -> str | None:
    """Return the reason why a path is not a regular file, as the end of a sentence, or None."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            return "is a link to a file that does not exist"
        return f"cannot be read ({error.strerror})"
    except ValueError as error:  # an embedded null character
        return f"cannot be read ({error})"
    if stat.S_ISDIR(mode):
        return "cannot be read (Is a directory)"
    return None if stat.S_ISREG(mode) else f"is {KINDS.get(stat.S_IFMT(mode), 'something else')}, and must be a file"


def excerpt(content: Iterable[str], size: int = 200) -> str:
    """Return names from a file, separated by commas and shortened, for an error: a damaged file may have any names."""
    text = ", ".join(content)
    return text if len(text) <= size else f"{text[:size]}…"
