"""Atomic writing of files, copies of folders with links, and the text of JSON and CSV files."""

import atexit
import csv
import errno
import io
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from gyral.core.errors import printable

# Spreadsheets take these signs at the start of a cell, full-width ones too, for the start of a formula.
FORMULAS = tuple("=+-@\t\r\n＝＋－＠")
FORMULA = re.compile(rf"[\s']*[{re.escape(''.join(FORMULAS))}]")
NUMBER = re.compile(r"-(inf|[\d.]+(e[+-]?\d+)?)", re.IGNORECASE | re.ASCII)

# Patterns of the files that a process leaves in a folder, and in the folders in it, if it is killed while it writes.
UNFINISHED = ("*.tmp", "*/*.????????.tmp")
_unfinished: set[Path] = set()  # temporary files that a thread writes


@atexit.register
def _remove_unfinished() -> None:
    """Remove the temporary files of threads that the end of the process interrupts, as Ctrl-C does."""
    while _unfinished:
        _unfinished.pop().unlink(missing_ok=True)


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Add the name of a file to the errors of writing it, which lack the name if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def replace_when_written(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file in the same folder and move it to `path`, so that `path` is never incomplete.

    Several processes may write a file at the same time. Each writes a temporary file of its own, and the last one to
    finish replaces the file.

    Args:
        path: path of the file; its folder is created if necessary.
        write: writes the file at the path that it is called with.

    Raises:
        OSError: the file cannot be written, or `path` is a named pipe or a device; the temporary file is removed and
            `path` is unchanged.
    """
    if path.exists() and not path.is_file() and not path.is_dir():  # a directory is refused below
        raise OSError(errno.EINVAL, "is a named pipe or a device, which is not replaced by a file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")  # a killed process leaves it
    _unfinished.add(temporary)
    try:
        temporary.touch(exist_ok=False)
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        # errors of torch lack the file name
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
        _unfinished.discard(temporary)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second place without a second copy, if the file system has hard links.

    Raises:
        OSError: `target` cannot be written; it is unchanged.
    """

    def write(temporary: Path) -> None:
        temporary.unlink()
        try:
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)

    replace_when_written(target, write)


def copy_folder(source: Path, target: Path, without: Sequence[str] = ()) -> None:
    """Copy the files of a folder and its folders into another one; existing files are replaced.

    A link to a place within the folder becomes such a link in the copy. It is not followed: links may repeat a large
    file, or a folder that contains them. Other links are left out.

    Args:
        source: the folder.
        target: the folder of the copy, which is made if necessary.
        without: names, or patterns of names, of files and folders that are not copied.

    Raises:
        OSError: a file cannot be read or written.
    """
    root = source.resolve()
    for place, folders, files in os.walk(source):
        folder, copy = Path(place), target / Path(place).relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        kept = [name for name in (*folders, *files) if not any(fnmatch(name, pattern) for pattern in without)]
        for path in (folder / name for name in kept):
            if path.is_symlink():
                inside = Path(os.path.realpath(path))
                if inside.is_relative_to(root):
                    remove(copy / path.name)
                    (copy / path.name).symlink_to(os.path.relpath(inside, folder.resolve()))
            elif path.is_file():
                shutil.copy2(path, copy / path.name)
        folders[:] = [name for name in folders if name in kept]


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with its contents, if it exists. What links point to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a text file completely or not at all; bytes of names of files that are not text become escapes."""
    content = text.encode("utf-8", "backslashreplace")
    replace_when_written(path, lambda temporary: temporary.write_bytes(content))


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON of RFC 8259: a number that is not finite is null, and text is Unicode.

    Characters that terminals obey are escapes.

    Args:
        value: nested containers of text, numbers, booleans and None.
        indent: number of spaces of a level. None: one line.
    """
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)
    except ValueError:  # a number is not finite, which is rare
        text = json.dumps(_finite(value), indent=indent, ensure_ascii=False, allow_nan=False)
    text = text.encode(errors="replace").decode()  # bytes of a command line that are not text
    if text.isprintable() or printable(text) == text:
        return text
    return "".join(sign if printable(sign) == sign else json.dumps(sign)[1:-1] for sign in text)


def to_json_lines(content: Mapping[str, Any]) -> str:
    """Return an object as the text of a JSON file that has a line for each of its fields."""
    return "{\n" + ",\n".join(f"{to_json(name)}: {to_json(value)}" for name, value in content.items()) + "\n}\n"


def _finite(value: Any) -> Any:
    """Return nested containers with None for each number that is not finite."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_line(values: Iterable[Any], end: str = "\n") -> str:
    """Return a line of CSV. An apostrophe precedes each text that a spreadsheet would take for a formula.

    Args:
        values: the values of the line. Numbers, also as text, are written as they are.
        end: the end of the line.
    """
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator=end).writerow(map(_without_formula, values))
    return line.getvalue()


def plain_text(cell: str) -> str:
    """Return the text of a cell that `csv_line` has written: without the apostrophe before a formula."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def _without_formula(value: Any) -> Any:
    is_formula = isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value
