"""Examples of files that a corpus is prepared from, and reports on them.

This module does not import torch, because many worker processes import it.
"""

import codecs
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gyral.core.errors import OptionError, UserError
from gyral.core.inputs import read_bytes

# Names of the fields of articles with summaries.
ARTICLE, SUMMARY, TITLE = ("article", "story"), ("highlights", "summary", "abstract"), ("title",)


class RawExample(NamedTuple):
    """An example of a corpus file before parsing.

    Attributes:
        place: file and line, for messages to the user.
        content: the unparsed content; an exception if it could not be read.
        progress: fraction of the source that has been read, 0 to 1.
    """

    place: str
    content: Any
    progress: float


class UnusableError(Exception):
    """An example cannot be used and is skipped; the message gives the reason."""


class DamagedPartError(UserError):
    """A file of a part was changed after it was written."""


@dataclass
class Report:
    """Statistics of the examples that were kept and skipped.

    Attributes:
        kept: number of examples.
        left_out: the number of skipped examples and the location of the first one, by reason.
        noted: the same for examples that were kept although they are unusual.
    """

    kept: int = 0
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    noted: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, counts: dict[str, tuple[int, str]], reason: str, place: str, count: int = 1) -> None:
        """Count a reason in `left_out` or `noted`."""
        before, first = counts.get(reason, (0, place))
        counts[reason] = before + count, first

    def update(self, other: "Report") -> None:
        """Add the counts of another report."""
        self.kept += other.kept
        for mine, others in ((self.left_out, other.left_out), (self.noted, other.noted)):
            for reason, (count, first) in others.items():
                self.add(mine, reason, first, count)

    def __str__(self) -> str:
        return f"{self.kept:,} pairs{self.oddities()}"

    def oddities(self) -> str:
        """Return a description of skipped and unusual examples; empty if there are none."""
        parts = ""
        for title, counts in (("left out", self.left_out), ("kept", self.noted)):
            listed = (f"{count:,} {reason} (first {first})" for reason, (count, first) in counts.items())
            parts += f"; {title}: {', '.join(listed)}" if counts else ""
        return parts


def restore_report(saved: Mapping[str, Any]) -> Report:
    """Return the report whose `dataclasses.asdict` is given, also after a round trip through JSON."""
    counted = {
        name: {reason: (count, first) for reason, (count, first) in saved[name].items()}
        for name in ("left_out", "noted")
    }
    return Report(saved["kept"], **counted)


def line_examples(lines: BinaryIO) -> Iterator[RawExample]:
    """Yield the lines of an open file that are not empty, as bytes, without a byte order mark."""
    name, size, position = Path(lines.name).name, os.fstat(lines.fileno()).st_size, 0
    for number, line in enumerate(lines, start=1):
        position += len(line)
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield RawExample(f"{name}:{number}", line, position / max(size, position))  # a file may grow


def json_examples(lines: BinaryIO) -> Iterator[RawExample]:
    """Yield the records of an open file of JSON lines, or of one JSON array, each as bytes of JSON.

    Raises:
        UserError: an array that is not JSON. The message names the first wrong line.
    """
    begin = lines.peek(2**12).removeprefix(codecs.BOM_UTF8).lstrip()[:2]  # type: ignore[attr-defined]
    if not begin.startswith(b"["):
        yield from line_examples(lines)
        return
    name = Path(lines.name).name
    try:
        records = json.loads(lines.read().decode("utf-8-sig", "replace"), strict=False)
    except json.JSONDecodeError as error:
        raise UserError(f"{lines.name}, line {error.lineno}: is not JSON: {error.msg}") from None
    except RecursionError:
        raise UserError(f"{lines.name}: has too deeply nested values") from None
    for number, record in enumerate(records, start=1):
        yield RawExample(f"{name}:record {number}", json.dumps(record).encode(), number / len(records))


def load_line(line: bytes) -> Any:
    """Return the content of a line of JSON.

    Raises:
        UnusableError: the line is not JSON.
    """
    try:
        return json.loads(line.decode(errors="replace"), strict=False)  # the tokenizer removes control characters
    except (ValueError, RecursionError):
        raise UnusableError("line that is not JSON") from None


def file_text(path: str) -> str:
    """Return the text of a file that is a record. Bytes that are not UTF-8 become �.

    Raises:
        UnusableError: the file cannot be read.
    """
    try:
        content = read_bytes("file", path)
    except OptionError as error:
        raise UnusableError(f"that {error.reason}") from None
    return io.StringIO(content.decode("utf-8-sig", "replace"), newline=None).read()


def file_state(file: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file in nanoseconds; zeros if the file does not exist."""
    try:
        state = file.stat()
    except OSError:
        return 0, 0
    return state.st_size, state.st_mtime_ns


def field_lines(fields: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """Return the lines of the first of the named fields that is present.

    Raises:
        UnusableError: the field is neither a text nor a list of texts.
    """
    value = next((fields[name] for name in names if fields.get(name) is not None), "")
    texts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise UnusableError(f"whose {' or '.join(names)} is not a text")
    return [line for text in texts for line in text.split("\n") if line.strip()]
