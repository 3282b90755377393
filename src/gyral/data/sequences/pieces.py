"""The rows of a file, of a data frame or of arrays in pieces of whole sequences, so that files of any size stream.

Only .npz files are read as a whole.
"""

import csv
import io
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, path_of
from gyral.data.sequences.columns import Column, ColumnFile, JsonFile, ParquetFile, column_of, first_line, read_records
from gyral.data.sequences.csv_columns import CsvFile, read_cells
from gyral.data.sequences.files import checked_suffix, open_columns
from gyral.data.sequences.schema import Schema

CELLS = 2_000_000  # of a piece, which take about 200 MB while they are texts
BLOCK = 20_000  # rows that are read at once


@dataclass(frozen=True)
class Piece:
    """Some rows of a file.

    Attributes:
        file: the rows as a file.
        first: the number of its first row in the whole file.
    """

    file: ColumnFile
    first: int = 0


def read_pieces(data: Any, schema: Schema) -> Iterator[Piece]:
    """Yield the rows of what a user gives in pieces of whole sequences, in order.

    Args:
        data: one of

            * the path of a file of the kinds that `gyral.data.sequences.corpus.SequencesFile` reads;
            * a `pandas.DataFrame` with the same columns, whose cells may be lists;
            * a dictionary of arrays by the names of the columns, as in an .npz file;
            * an array or tensor (N, T) or (N, T, X) of all sequences, whose last dimension has the inputs in the order
              of the schema, or a list of arrays (T,) or (T, X), one for each sequence.
        schema: the names of the inputs and targets of the trained model. In a file with more than `CELLS` values and
            one step in each row, the rows of a sequence must be next to each other.

    Raises:
        OptionError: the data cannot be read, or are empty; rows of a sequence are in several places.
    """
    sequence = schema.sequence
    named = {*schema.targets, *filter(None, (schema.lengths, sequence, schema.time))}
    if isinstance(data, str | PathLike):
        path = path_of(data)
        suffix = checked_suffix(path)
        if suffix in (".csv", ".tsv"):
            yield from _csv_pieces(path, read_cells(path), named, sequence)
        elif suffix in (".jsonl", ".json"):
            yield from _json_pieces(path, read_records(path), sequence)
        elif suffix == ".parquet":
            yield from _parquet_pieces(ParquetFile(path), {*named, *schema.inputs}, sequence)
        else:
            yield Piece(open_columns(path, named))
    elif hasattr(data, "to_csv"):  # a data frame, without importing pandas
        path = Path("frame")
        if _has_lists(data):
            records = ({str(name): _plain(value) for name, value in row.items()} for row in data.to_dict("records"))
            yield from _json_pieces(path, records, sequence)
        else:
            yield from _csv_pieces(path, _cells_of(data), named, sequence)
    elif isinstance(data, Mapping):
        yield Piece(ArraysFile({str(name): _array(values) for name, values in data.items()}))
    else:
        yield Piece(ArraysFile(_by_name(data, schema)))


def _by_name(data: Any, schema: Schema) -> dict[str, Any]:
    """Return sequences without a name by the names of the inputs, whose last dimension they have."""
    array = _array(data)
    if len(schema.inputs) == 1:
        return {schema.inputs[0]: array}
    rows = list(array) if isinstance(array, list) or array.ndim else []
    for number, row in enumerate(rows):
        if row.ndim != 2 or row.shape[1] != len(schema.inputs):
            reason = f"has the shape {row.shape}; must be (steps, {len(schema.inputs)}), for {', '.join(schema.inputs)}"
            raise OptionError("data", ArraysFile.path, f"row {number}: {reason}")
    return {name: [row[:, place] for row in rows] for place, name in enumerate(schema.inputs)}


def _array(values: Any) -> "np.ndarray | list[np.ndarray]":
    """Return values as an array, or as a list of arrays if the rows have different lengths."""
    try:
        if not isinstance(values, list | tuple):
            return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
        rows = [np.asarray(row.detach().cpu() if hasattr(row, "detach") else row) for row in values]
    except (ValueError, TypeError, RuntimeError) as error:
        raise OptionError("data", ArraysFile.path, f"must have numbers: {first_line(error)}") from None
    is_even = len({row.shape for row in rows}) == 1
    return np.stack(rows) if is_even else rows


class ArraysFile:
    """Arrays in memory, see `gyral.data.sequences.columns.ColumnFile`.

    Args:
        arrays: an array (N,), (N, T) or (N, T, X), or a list of arrays (T,) or (T, X), by their names.
    """

    kind = "array"
    path = Path("arrays")

    def __init__(self, arrays: "Mapping[str, np.ndarray | list[np.ndarray]]") -> None:
        self._arrays = arrays
        self.names = list(arrays)

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        """Return an array as a column."""
        array, place = self._arrays[name], f"array {name}"
        if isinstance(array, np.ndarray):
            return column_of(array, name, self.path)
        for number, row in enumerate(array):
            if row.ndim not in (1, 2) or row.shape[1:] != array[0].shape[1:]:
                reason = f"has the shape {row.shape}; must be (steps,) or (steps, X), as row 0"
                raise OptionError("data", self.path, f"{place}, row {number}: {reason}")
        if not array:
            raise OptionError("data", self.path, f"{place}: has no rows")
        return Column(place, np.concatenate(array), np.array([len(row) for row in array]))


class _ParquetPart(ParquetFile):
    """Some rows of a Parquet file in memory, as a table of pyarrow."""

    def __init__(self, file: ParquetFile, table: Any) -> None:
        self.path, self.names, self._table = file.path, file.names, table

    def read(self, name: str, missing: bool = False, texts: bool = False) -> Column:
        return self.convert(self._table.column(name).combine_chunks(), f"column {name}", missing, texts)


class _Block(NamedTuple):
    """Rows that were read at once.

    Attributes:
        rows: a list, or a table of pyarrow.
        keys: the name of the sequence of each row; None: a row has a whole sequence.
        cells: number of values.
    """

    rows: Any
    keys: list[Any] | None
    cells: int


def _csv_pieces(
    path: Path, lines: Iterator[list[str]], named: Collection[str], sequence: str | None
) -> Iterator[Piece]:
    head = next(lines, [])
    index = head.index(sequence) if sequence in head else None

    def blocks() -> Iterator[_Block]:
        while rows := list(islice(lines, BLOCK)):
            keys = None if index is None else [row[index] if index < len(row) else "" for row in rows]
            yield _Block(rows, keys, sum(map(len, rows)))

    for first, rows in _whole_sequences(blocks(), path, _chained):
        yield Piece(CsvFile(path, named, chain([head], rows)), first)


def _json_pieces(path: Path, records: Iterator[dict[str, Any]], sequence: str | None) -> Iterator[Piece]:
    def blocks() -> Iterator[_Block]:
        while rows := list(islice(records, BLOCK)):
            keys = None if sequence is None else [str(row.get(sequence)) for row in rows]
            yield _Block(rows, keys, sum(_count(value) for row in rows for value in row.values()))

    for first, rows in _whole_sequences(blocks(), path, _chained):
        yield Piece(JsonFile(path, rows), first)


def _parquet_pieces(file: ParquetFile, wanted: Collection[str], sequence: str | None) -> Iterator[Piece]:
    import pyarrow

    names = [name for name in file.names if name in wanted]

    def blocks() -> Iterator[_Block]:
        for table in file.parts(names, BLOCK):
            keys = table.column(sequence).to_pylist() if sequence in names else None
            yield _Block(table, keys, table.nbytes // 8)

    def join(tables: list[Any]) -> Any:
        if not tables:
            raise OptionError("data", file.path, "has no rows")
        try:
            return pyarrow.concat_tables(tables, promote_options="permissive")
        except pyarrow.ArrowException as error:
            raise OptionError("data", file.path, f"cannot be read: {first_line(error)}") from error

    for first, table in _whole_sequences(blocks(), file.path, join):
        yield Piece(_ParquetPart(file, table), first)


def _whole_sequences(
    blocks: Iterator[_Block], path: Path, join: Callable[[list[Any]], Any]
) -> Iterator[tuple[int, Any]]:
    """Yield the rows of blocks in pieces of about `CELLS` values, each with the number of its first row.

    A piece ends where a sequence ends. Without any row, there is one empty piece.

    Args:
        blocks: the rows.
        path: path of the file, for errors.
        join: makes one block of rows of several.

    Raises:
        OptionError: a sequence continues after the end of its piece.
    """
    parts: list[Any] = []
    keys: list[Any] = []
    ended: set[Any] = set()
    first = count = cells = 0
    for block in blocks:
        if block.keys is not None:
            if again := ended.intersection(block.keys):
                raise _scattered(path, again.pop())
            keys += block.keys
        parts.append(block.rows)
        count, cells = count + len(block.rows), cells + block.cells
        if cells < CELLS:
            continue
        end = count
        if block.keys is not None:  # the last sequence may go on in the next block
            while end and keys[end - 1] == keys[-1]:
                end -= 1
            ended.update(keys[:end])
            if end and keys[-1] in ended:
                raise _scattered(path, keys[-1])
        if end:
            rows = join(parts)
            yield first, rows[:end]
            parts, keys = [rows[end:]] if end < count else [], keys[end:]
            cells = cells * (count - end) // count
            first, count = first + end, count - end
    if parts or not first:
        yield first, join(parts)


def _scattered(path: Path, key: Any) -> OptionError:
    place = f"the rows of the sequence {excerpt([str(key)])} are not next to each other"
    reason = f"{place}, as they must be in a file of more than {CELLS:,} values; sort the rows by sequence"
    return OptionError("data", path, reason)


def _chained(parts: list[list[Any]]) -> list[Any]:
    return list(chain.from_iterable(parts))


def _count(value: Any) -> int:
    """Return the number of values of a field of JSON."""
    return sum(map(_count, value)) if isinstance(value, list) else 1


def _has_lists(frame: Any) -> bool:
    """Return whether a column of a data frame has lists or arrays."""
    firsts = (frame[name].iloc[0] for name in frame.columns if len(frame) and frame[name].dtype == object)
    return any(isinstance(value, list | tuple | np.ndarray) for value in firsts)


def _plain(value: Any) -> Any:
    """Return an entry of a data frame as JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _cells_of(frame: Any) -> Iterator[list[str]]:
    """Yield the names of the columns of a data frame and the cells of its rows, as `read_cells` does for a file."""
    yield [str(name).strip() for name in frame.columns]
    for start in range(0, len(frame), BLOCK):
        text = frame.iloc[start : start + BLOCK].to_csv(index=False, header=False)
        yield from ([cell.strip() for cell in line] for line in csv.reader(io.StringIO(text, newline="")))
