"""Tables of .csv and .tsv files: a line for each sequence, or a line for each step."""

import csv
import io
import re
from pathlib import Path

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, open_input, suffix_of
from gyral.data.sequences.columns import Column

NUMBERED = re.compile(r"(.*?)[ _.\-\[]*(\d+)\]?")  # x0, x_0, x[0], or 0: step 0 of x, or of `inputs`
INPUTS = "inputs"


class TableFile:
    """A file with a line of names, and then a line for each sequence or for each step.

    A line for each sequence: columns with one name and rising numbers, such as x0, x1 and x2, are the steps of the
    column x; empty cells at the end of a line are no steps. If x is the only one of this kind, it is also the column
    `inputs`.

    A line for each step: the lines with the same entry in the column `sequence_id` are a sequence, in the order of the
    file. Sequences are in the order of their first lines.

    Cells that are all integers, or all real numbers, are numbers, with NaN for empty cells, and others texts. See
    `ColumnFile`.

    Args:
        path: path of the file.
        sequence_id: the column with the names of the sequences. None: a line is a sequence.

    Raises:
        OptionError: the file cannot be read, its lines differ in length, or a name of a column is missing or twice.
    """

    kind = "column"

    def __init__(self, path: Path, sequence_id: str | None = None) -> None:
        self.path = path
        header, rows = self._read_cells()
        self._cells = {name: [row[place] for row in rows] for place, name in enumerate(header)}
        self._series: dict[str, list[str]] = {}
        self._order: list[list[int]] | None = None
        if sequence_id is None:
            for name in header:
                if found := NUMBERED.fullmatch(name):
                    self._series.setdefault(found[1] or INPUTS, []).append(name)
            self._series = {
                name: parts for name, parts in self._series.items() if name not in header and len(parts) > 1
            }
            if len(self._series) == 1 and INPUTS not in header:
                self._series[INPUTS] = next(iter(self._series.values()))
        elif sequence_id not in self._cells:
            reason = f"{path} has no column {sequence_id}; it has {excerpt(header)}"
            raise OptionError("sequence_id", sequence_id, reason)
        else:
            lines: dict[str, list[int]] = {}
            for line, name in enumerate(self._cells[sequence_id]):
                lines.setdefault(name, []).append(line)
            self._order = list(lines.values())
        self.names = [*dict.fromkeys((*self._series, *header))]

    def _read_cells(self) -> tuple[list[str], list[list[str]]]:
        csv.field_size_limit(2**31 - 1)
        delimiter = "\t" if suffix_of(self.path) == ".tsv" else ","
        with open_input("data", self.path) as content, io.TextIOWrapper(content, "utf-8-sig", newline="") as lines:
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            try:
                header = [name.strip() for name in next(reader, [])]
                rows = []
                for row in filter(None, reader):
                    if len(row) != len(header):
                        reason = f"line {reader.line_num}: has {len(row)} cells; the first line has {len(header)} names"
                        raise OptionError("data", self.path, reason)
                    rows.append([cell.strip() for cell in row])
            except (csv.Error, UnicodeDecodeError) as error:
                reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
                raise OptionError("data", self.path, f"line {reader.line_num + 1}: {reason}") from None
        if not rows:
            raise OptionError("data", self.path, "has no lines below the first one, which has the names of the columns")
        if "" in header or len({*header}) < len(header):
            reason = f"the first line must have a name for each column, each of them once; it has {excerpt(header)}"
            raise OptionError("data", self.path, reason)
        if all(_number(name) is not None for name in header) and not all(name.isdigit() for name in header):
            raise OptionError("data", self.path, "the first line has numbers; it must have the names of the columns")
        return header, rows

    def read(self, name: str) -> Column:
        """Return a column: the entries of the lines, or of all steps if there is a line for each step."""
        place = f"column {name}"
        if self._order is not None:
            cells = [self._cells[name][line] for lines in self._order for line in lines]
            return Column(place, _values(cells), np.array([len(lines) for lines in self._order]))
        if name not in self._series:
            return Column.of_scalars(place, _values(self._cells[name]))
        parts = self._series[name]
        numbers = [int(NUMBERED.fullmatch(part)[2]) for part in parts]  # type: ignore[index]
        if numbers != [*range(numbers[0], numbers[0] + len(parts))]:
            raise OptionError("data", self.path, f"columns {excerpt(parts)}: their numbers must rise by one")
        rows = [_without_end(row) for row in zip(*(self._cells[part] for part in parts), strict=True)]
        column = Column(place, _values([cell for row in rows for cell in row]), np.array([*map(len, rows)]))
        gaps = np.array([not cell for row in rows for cell in row], dtype=bool)
        if gaps.any():
            raise OptionError("data", self.path, f"{column.locate(int(gaps.argmax()))}: is empty")
        return column


def _without_end(row: tuple[str, ...]) -> tuple[str, ...]:
    """Return a row without the empty cells at its end."""
    length = next((length for length in range(len(row), 0, -1) if row[length - 1]), 0)
    return row[:length]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _values(cells: list[str]) -> np.ndarray:
    """Return cells as integers, real numbers or texts."""
    if all(re.fullmatch(r"[+-]?\d{1,18}", cell) for cell in cells):
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    numbers = [_number(cell) if cell else np.nan for cell in cells]
    if None in numbers or not any(cells):
        return np.array(cells, dtype=str)
    return np.array(numbers, dtype=np.float64)
