"""Columns of .csv files, of which several may be the steps of a sequence."""

import csv
import io
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, open_input
from gyral.data.sequences.columns import MISSING_WORDS, Column

NUMBERED = re.compile(r"(.*?)[ _.\[-]?(\d{1,9})\]?")
INPUTS = "inputs"
SEPARATORS = (",", ";", "\t")


class CsvFile:
    """A file with values separated by commas, semicolons or tabs, and the names of its columns in the first line.

    The separator is the one that the first line has most often.

    A name is that of a column with one value per row, or the common beginning of numbered columns, which have the steps
    of a row: `t` stands for `t0`, `t1`, … Empty cells at the end make a row shorter. If there is no column `inputs`, it
    stands for the numbered columns that no other option names. See `gyral.data.sequences.columns.ColumnFile`.

    Args:
        path: path of the file, which may be packed as .csv.gz.
        named: the columns that other options than the inputs name.
        lines: the cells of the names and of the rows. None: those of the file, see `read_cells`.

    Attributes:
        series: the common beginning of the numbered columns that `inputs` stands for, if they have one; else `inputs`.

    Raises:
        OptionError: the file is not UTF-8, has no line of names, or has a row with another number of values.
    """

    kind = "column"
    series = INPUTS

    def __init__(self, path: Path, named: Collection[str] = (), lines: Iterable[Sequence[str]] | None = None) -> None:
        self.path = path
        found = read_cells(path) if lines is None else iter(lines)
        self._head = next(found, [])
        self._check_head()
        self._rows = list(found)
        if not self._rows:
            raise OptionError("data", path, "has no rows below the names of the columns")
        for number, row in enumerate(self._rows):
            if len(row) != len(self._head):
                reason = f"has {len(row)} values; the first line has {len(self._head)} names"
                raise OptionError("data", path, f"row {number}: {reason}")
        self._places = {name: place for place, name in enumerate(self._head)}
        self._numbered = self._find_numbered(named)
        self.names = [*self._numbered, *self._head]

    def _check_head(self) -> None:
        if not self._head:
            raise OptionError("data", self.path, "is empty; must have the names of the columns in its first line")
        first = ", ".join(self._head)
        if len(self._head) == 1:
            reason = "must have columns that are separated by commas, semicolons or tabs; its first line is"
            raise OptionError("data", self.path, f"{reason} {excerpt([repr(first)])}")
        seen: set[str] = set()
        for name in self._head:
            if _is_number(name) and not name.isdecimal():
                reason = f"must have the names of the columns in its first line, which has {name}"
                raise OptionError("data", self.path, reason)
            if name in seen:
                reason = f"two columns have the name {excerpt([name])!r}; each must have its own, in the first line"
                raise OptionError("data", self.path, reason)
            seen.add(name)

    def _find_numbered(self, named: Collection[str]) -> dict[str, list[tuple[int, str]]]:
        """Return the numbers and names of numbered columns by their common beginning, or by `inputs`."""
        found: dict[str, list[tuple[int, str]]] = {}
        for name in self._head:
            match = NUMBERED.fullmatch(name)
            if match and name not in named:
                found.setdefault(match[1], []).append((int(match[2]), name))
        series = {stem: sorted(own) for stem, own in found.items() if len(own) > 1}
        free = [stem for stem in series if stem not in named]
        usable = {stem: own for stem, own in series.items() if stem and stem not in self._places}
        if INPUTS not in {*self._places, *usable} and len(free) == 1:
            usable[INPUTS] = series[free[0]]
            self.series = free[0] if free[0] in usable else INPUTS
        return usable

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        if name in self._places:
            values, stray = _parse([row[self._places[name]] for row in self._rows], missing, texts)
            return Column.of_scalars(f"column {name}", values, stray)
        columns = self._numbered[name]
        heads = [head for _, head in columns]
        place = f"columns {heads[0]} to {heads[-1]}"
        for (number, before), (other, after) in itertools.pairwise(columns):
            if other != number + 1:
                reason = f"{before} is followed by {after}; the numbers must be consecutive"
                raise OptionError("data", self.path, f"{place}: {reason}")
        places = [self._places[head] for head in heads]
        cells: list[str] = []
        lengths = np.empty(len(self._rows), dtype=np.int64)
        for number, row in enumerate(self._rows):
            own = [row[index] for index in places]
            while own and not own[-1]:
                own.pop()
            cells += own
            lengths[number] = len(own)
        values, stray = _parse(cells, missing, texts)
        return Column(place, values, lengths, heads=heads, stray=stray)


def read_cells(path: Path) -> Iterator[list[str]]:
    """Yield the cells of the lines of a .csv file that are not empty.

    Raises:
        OptionError: the file cannot be read, is not UTF-8, or has quotes that do not end.
    """
    csv.field_size_limit(2**31 - 1)  # a column that no option names may have texts of any length
    with open_input("data", path) as content:
        lines = io.TextIOWrapper(content, "utf-8-sig", newline="")
        try:
            begin = []
            for line in lines:
                begin.append(line)
                if line.strip():
                    break
            separator = max(SEPARATORS, key=(begin[-1] if begin else "").count)
            spaces = separator != "\t"
            reader = csv.reader(
                itertools.chain(begin, lines), delimiter=separator, strict=True, skipinitialspace=spaces
            )
            yield from ([cell.strip() for cell in row] for row in reader if row)
        except csv.Error as error:
            raise OptionError("data", path, f"line {reader.line_num}: cannot be read as .csv: {error}") from None
        except UnicodeDecodeError as error:
            raise OptionError("data", path, f"is not UTF-8: byte 0x{error.object[error.start]:02x}") from None


def _parse(cells: Sequence[str], missing: bool, texts: bool) -> tuple[np.ndarray, int | None]:
    """Return cells as integers, real numbers, or texts, and the first text if there are numbers among the texts.

    Args:
        cells: the texts of the cells.
        missing, texts: see `gyral.data.sequences.columns.ColumnFile.read`.
    """
    values, stray = _numbers_of(cells, missing)
    if not texts or (not missing and values.dtype.kind == "f" and np.isnan(values).any()):
        return values, stray  # a number that is missing is not a text
    is_same = values.dtype.kind == "i" and [str(value) for value in values.tolist()] == cells
    return values if is_same else np.array(cells, dtype=str), None


def _numbers_of(cells: Sequence[str], missing: bool) -> tuple[np.ndarray, int | None]:
    """Return cells as integers, real numbers, or texts, and the first text if there are numbers among the texts."""
    filled = ["nan" if cell.lower() in MISSING_WORDS else cell for cell in cells] if missing else cells
    for kind, dtype in ((int, np.int64), (float, np.float64)):
        try:
            values = np.array([kind(cell) for cell in filled], dtype=dtype)
        except (ValueError, OverflowError):
            continue
        if not any("_" in cell for cell in cells):  # which Python allows in numbers
            return values, None
    are_numbers = [_is_number(cell) for cell in cells]
    if missing and any(are_numbers):
        are_numbers = [_is_number(cell) for cell in filled]
    return np.array(cells, dtype=str), are_numbers.index(False) if any(are_numbers) else None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
