"""Columns of .npz, .parquet and .json files."""

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.inputs import check_file, open_input
from gyral.data.arrays import check_arrays, check_parquet
from gyral.data.raw_examples import UnusableError, json_examples, load_line

EXACT = 2**53  # real numbers represent all integers up to this one
MISSING_WORDS = frozenset(("", "na", "n/a", "nan", "null", "none", "-", "?"))  # in lower case
INTEGER = re.compile(r"[+-]?\d+")
EXAMPLE = '{"inputs": [0.5, 1.5], "targets": "yes"}'


@dataclass(frozen=True)
class Column:
    """A column of a file, or an array of a .npz file.

    Attributes:
        place: its name in errors, such as "array inputs".
        values: the entries of all rows one after another, (S, …).
        lengths: (N,) number of entries of each row.
        is_scalar: whether each row has a single entry rather than a list of them.
        rows: the row of the file of each entry, if a sequence has several rows of the file; else None.
        heads: names of the columns of the file that have the entries of a row, if it has several; else empty.
        stray: index of the first text in a column of a .csv file that has numbers, too; else None.
    """

    place: str
    values: np.ndarray
    lengths: np.ndarray
    is_scalar: bool = False
    rows: np.ndarray | None = None
    heads: Sequence[str] = ()
    stray: int | None = None

    @classmethod
    def of_scalars(
        cls, place: str, values: np.ndarray, stray: int | None = None, rows: np.ndarray | None = None
    ) -> "Column":
        """Return a column with one entry per row, (N, …)."""
        return cls(place, values, np.ones(len(values), dtype=np.int64), is_scalar=True, rows=rows, stray=stray)

    def locate(self, index: int) -> str:
        """Return the place of an entry in words, such as "array inputs, row 3, step 5"; both count from 0."""
        if self.rows is not None:
            return f"{self.place}, row {self.rows[index]}"
        if self.is_scalar:
            return f"{self.place}, row {index}"
        ends = np.cumsum(self.lengths)
        row = int(np.searchsorted(ends, index, side="right"))
        step = index - int(ends[row] - self.lengths[row])
        return f"column {self.heads[step]}, row {row}" if self.heads else f"{self.place}, row {row}, step {step}"


class ColumnFile(Protocol):
    """A file with named columns.

    Attributes:
        path: path of the file.
        kind: "array", "column" or "field".
        names: names of the columns.
    """

    path: Path
    kind: str
    names: list[str]

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        """Return a column of the file.

        Args:
            name: its name.
            missing: whether numbers may be missing, which are NaN.
            texts: whether entries that would differ as numbers from what the file has are texts, such as 007.

        Raises:
            OptionError: the column cannot be read, or does not contain numbers or text.
        """


class NumpyFile:
    """A file that `numpy.savez` wrote. See `ColumnFile`.

    Raises:
        OptionError: the file is not an .npz file of named arrays.
    """

    kind = "array"

    def __init__(self, path: Path) -> None:
        self.path = path
        # NumPy leaves a file open that it cannot read, unless it is opened here.
        with open_input("data", path) as file:
            try:
                archive = np.load(file, allow_pickle=False)
                if isinstance(archive, np.lib.npyio.NpzFile):
                    check_arrays(archive, os.fstat(file.fileno()).st_size)
            except Exception as error:  # damaged archives raise many kinds
                raise OptionError("data", path, f"cannot be read as .npz: {first_line(error)}") from error
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise OptionError("data", path, "contains a single array without a name; write it with numpy.savez")
        self.names = list(archive.files)

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        with open_input("data", self.path) as file:
            try:
                array = np.load(file, allow_pickle=False)[name]
            except Exception as error:  # damaged archives raise many kinds
                reason = f"cannot be read: {first_line(error)}"
                if "allow_pickle" in reason:
                    reason = "contains Python objects; pad the rows to equal lengths and add an array lengths"
                raise OptionError("data", self.path, f"array {name}: {reason}") from error
        if not isinstance(array, np.ndarray):
            raise OptionError("data", self.path, f"array {name}: is not an array of NumPy")
        return column_of(array, name, self.path)


def column_of(array: np.ndarray, name: str, path: Path) -> Column:
    """Return an array whose first dimension is the rows as a column.

    Args:
        array: one entry per row, (N,), or one for each step, (N, T, …).
        name: its name.
        path: path of the file, for errors.

    Raises:
        OptionError: the array has no dimension.
    """
    if array.ndim == 0:
        raise OptionError("data", path, f"array {name}: is a single value; the first dimension must be rows")
    if array.ndim == 1:
        return Column.of_scalars(f"array {name}", array)
    lengths = np.full(len(array), array.shape[1])
    return Column(f"array {name}", array.reshape(-1, *array.shape[2:]), lengths)


class JsonFile:
    """A file of JSON lines, or of one JSON array, whose records are objects with the same fields as columns of Parquet.

    See `ColumnFile`.

    Args:
        path: path of the file.
        records: the records. None: those of the file, see `read_records`.

    Raises:
        OptionError: a record is not an object, or is not JSON. The message names its line.
    """

    kind = "field"

    def __init__(self, path: Path, records: Sequence[dict[str, Any]] | None = None) -> None:
        self.path = path
        self._records = list(read_records(path)) if records is None else records
        if not self._records:
            raise OptionError("data", path, "has no records")
        self.names = list(self._records[0])

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        rows: list[np.ndarray] = []
        is_list = isinstance(self._records[0].get(name), list)
        for number, record in enumerate(self._records):
            value = record.get(name)
            row = _row_of(_with_nan(value) if missing else value)
            if row is None or isinstance(value, list) != is_list or (rows and not _is_alike(row, rows[0])):
                reason = "must be a number or a text" if not is_list else "must be a list of numbers, or of their lists"
                alike = "" if number == 0 else ", as in row 0"
                raise OptionError("data", self.path, f"field {name}, row {number}: {reason}{alike}")
            rows.append(row)
        values = np.concatenate(rows)
        if texts and values.dtype.kind == "f" and values.ndim == 1:
            found: list[Any] = [record.get(name) for record in self._records]
            values = _exact([each for value in found for each in value] if is_list else found, values)
        if not is_list:
            return Column.of_scalars(f"field {name}", values)
        return Column(f"field {name}", values, np.array([len(row) for row in rows]))


def _exact(entries: Sequence[Any], values: np.ndarray) -> np.ndarray:
    """Return real numbers, or their texts, "" for a missing one, if they only approximate integers of the entries."""
    if not any(isinstance(entry, int) and abs(entry) > EXACT for entry in entries):
        return values
    return np.array(["" if entry is None or entry != entry else str(entry) for entry in entries])


def as_labels(numbers: Column, written: Column) -> Column:
    """Return a column of classes: numbers, or texts if numbers do not tell its integers apart, such as 07 and 7.

    Args:
        numbers: the column.
        written: the same column, which was read with `texts`.
    """
    values, texts = numbers.values, written.values
    if values.dtype.kind not in "iuf" or texts.dtype.kind != "U":
        return numbers
    is_there = values == values
    integers = texts[is_there].tolist()
    most = EXACT if values.dtype.kind == "f" else math.inf
    if not all(map(INTEGER.fullmatch, integers)):
        return numbers
    if not any(text.lstrip("+-")[:-1].startswith("0") or abs(int(text)) > most for text in integers):
        return numbers
    return replace(numbers, values=np.where(is_there, texts, ""))


def _with_nan(value: Any) -> Any:
    """Return a value of JSON with NaN in the place of null."""
    if isinstance(value, list):
        return [_with_nan(each) for each in value]
    return math.nan if value is None else value


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines, or of one JSON array.

    Raises:
        OptionError: the file cannot be read, or a record is not an object of JSON.
    """
    with open_input("data", path) as file:
        for place, content, _ in json_examples(file):
            try:
                record = load_line(content)
            except UnusableError:
                record = None
            if not isinstance(record, dict):
                raise OptionError("data", path, f"{place}: must be an object of JSON, such as {EXAMPLE}")
            yield record


def _row_of(value: Any) -> np.ndarray | None:
    """Return a value of JSON as the entries of a row, or None if it is not a number, a text, or a list of one kind."""
    entries = value if isinstance(value, list) else [value]
    try:
        row = np.array(entries)
    except (ValueError, OverflowError):  # lists of different lengths
        return None
    is_mixed = row.dtype.kind == "U" and not all(isinstance(entry, str) for entry in entries)
    return row if row.dtype.kind in "biufU" and row.ndim <= 2 and row.size and not is_mixed else None


def _is_alike(row: np.ndarray, first: np.ndarray) -> bool:
    return row.shape[1:] == first.shape[1:] and (row.dtype.kind == "U") == (first.dtype.kind == "U")


class ParquetFile:
    """A Parquet file, or a folder of them, whose columns have numbers, text, or lists (of lists) of numbers.

    The rows of a folder are those of its files in the order of their names. See `ColumnFile`.

    Raises:
        OptionError: it is not a Parquet file.
        UserError: pyarrow is not installed.
    """

    kind = "column"

    def __init__(self, path: Path) -> None:
        self.path = path
        import_extra("pyarrow", f"task.data={path}", "parquet")
        from pyarrow import parquet

        self.files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not self.files:
            raise OptionError("data", path, "is a folder without a .parquet file")
        for part in self.files:
            check_file("data", path, part)
            try:
                with parquet.ParquetFile(part) as file:
                    check_parquet(file.metadata, part.stat().st_size)
                    names = list(file.schema_arrow.names)
            except Exception as error:  # damaged files raise many kinds
                reason = f"cannot be read as .parquet: {first_line(error)}"
                raise OptionError("data", path, f"{self._place(part)}{reason}") from error
            if part == self.files[0]:
                self.names = names
            elif missing := [name for name in self.names if name not in names]:
                raise OptionError("data", path, f"{self._place(part)}has no column {missing[0]}")

    def _place(self, part: Path) -> str:
        return "" if part == self.path else f"{part.name}: "

    def parts(self, names: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield tables of pyarrow with columns of the rows, in order.

        Args:
            names: names of the columns.
            rows: the most rows of a table.

        Raises:
            OptionError: a column cannot be read.
        """
        import pyarrow
        from pyarrow import parquet

        for part in self.files:
            try:
                with parquet.ParquetFile(part) as file:
                    for batch in file.iter_batches(batch_size=rows, columns=list(names)):
                        yield pyarrow.Table.from_batches([batch])
            except OptionError:
                raise
            except Exception as error:  # damaged files raise many kinds
                raise OptionError(
                    "data", self.path, f"{self._place(part)}cannot be read: {first_line(error)}"
                ) from error

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        import pyarrow
        from pyarrow import parquet

        place, tables, last = f"column {name}", [], self.files[0]
        try:
            for last in self.files:
                with parquet.ParquetFile(last) as file:
                    tables.append(file.read(columns=[name]))
            table = tables[0] if len(tables) == 1 else pyarrow.concat_tables(tables, promote_options="permissive")
            return self.convert(table.column(name).combine_chunks(), place, missing, texts)
        except OptionError:
            raise
        except Exception as error:  # damaged files, and types that NumPy lacks, raise many kinds
            reason = f"{self._place(last)}{place}: cannot be read: {first_line(error)}"
            raise OptionError("data", self.path, reason) from error

    def convert(self, entries: Any, place: str, missing: bool, texts: bool = False) -> Column:
        """Return the column of an array of pyarrow; see `ColumnFile.read`."""
        if not missing or _is_list(entries.type):
            self._check_complete(entries, place, None)
        if not _is_list(entries.type):
            return Column.of_scalars(place, _scalars(entries, texts))
        lengths = _lengths(entries)
        column = Column(place, np.empty(0), lengths)  # to locate entries
        entries = entries.flatten()
        if not missing or _is_list(entries.type):
            self._check_complete(entries, place, column)
        if not _is_list(entries.type):
            return Column(place, _scalars(entries, texts), lengths)
        widths = _lengths(entries)
        if (widths != widths[:1]).any():
            other = int((widths != widths[0]).argmax())
            reason = f"{column.locate(other)}: has {widths[other]} values; the first step has {widths[0]}"
            raise OptionError("data", self.path, reason)
        entries = entries.flatten()
        width = int(widths[0]) if len(widths) else 0
        if (entries.null_count and not missing) or _is_list(entries.type):
            reason = "has empty values" if entries.null_count else "has lists of lists of lists"
            raise OptionError("data", self.path, f"{place}: {reason}; must have numbers")
        return Column(place, entries.to_numpy(zero_copy_only=False).reshape(-1, width), lengths)

    def _check_complete(self, entries: Any, place: str, column: Column | None) -> None:
        """Raise `OptionError` if there are empty entries."""
        if entries.null_count:
            first = entries.is_null().to_numpy(zero_copy_only=False).argmax()
            where = f"{place}, row {first}" if column is None else column.locate(int(first))
            raise OptionError("data", self.path, f"{where}: is empty (null)")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _scalars(entries: Any, texts: bool) -> np.ndarray:
    """Return an array of pyarrow; see `ColumnFile.read`. A missing text is empty, and a missing number NaN."""
    if entries.null_count and str(entries.type) == "bool":
        entries = entries.cast("int8")
    values: np.ndarray = entries.to_numpy(zero_copy_only=False)
    if entries.null_count and values.dtype.kind == "O":
        return np.array(["" if value is None else value for value in values.tolist()], dtype=object)
    is_approximate = entries.null_count and values.dtype.kind == "f"  # NumPy has no missing integers
    return _exact(entries.to_pylist(), values) if texts and is_approximate else values


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def _lengths(entries: Any) -> np.ndarray:
    from pyarrow import compute

    return compute.list_value_length(entries).to_numpy(zero_copy_only=False).astype(np.int64)
