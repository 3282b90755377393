"""Tables of predictions as CSV, JSON and Parquet files, and as lines of CSV, written while they are made."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.files import csv_line, replace_when_written, to_json
from gyral.core.inputs import path_of
from gyral.runs.evaluation_report import output_file

if TYPE_CHECKING:
    from gyral.tasks.predicted import Table  # later: it imports PyTorch

SUFFIXES = (".csv", ".parquet", ".jsonl", ".json")


def output_table(save: str | None) -> Path | None:
    """Return the path of the table to write, None for none.

    Raises:
        OptionError: its suffix is none of `SUFFIXES`.
        UserError: the package that writes it is not installed.
    """
    path = output_file(save, SUFFIXES)
    if path is not None and path.suffix == ".parquet":
        import_extra("pyarrow", f"save={save}", "parquet")
    return path


def write_tables(tables: "Iterable[Table]", path: Path) -> None:
    """Write tables with the same columns as one file in the form that its suffix says, completely or not at all.

    Raises:
        OptionError: it is a Parquet file, and a later table has numbers or texts that the type of a column cannot hold.
        OSError: the file cannot be written.
    """
    lines = {".csv": csv_lines, ".jsonl": json_lines, ".json": _json_array}

    def write(temporary: Path) -> None:
        if path.suffix == ".parquet":
            _write_parquet(tables, temporary, path)
            return
        with temporary.open("w", encoding="utf-8", newline="") as file:
            file.writelines(lines[path.suffix](tables))

    replace_when_written(path, write)


def csv_lines(tables: "Iterable[Table]") -> Iterator[str]:
    """Yield the lines of CSV of tables with the same columns, that of their names first."""
    for number, table in enumerate(tables):
        if number == 0:
            yield csv_line(table)
        yield from map(csv_line, _rows(table))


def json_lines(tables: "Iterable[Table]") -> Iterator[str]:
    """Yield the rows of tables as lines of JSON."""
    for table in tables:
        yield from (f"{to_json(dict(zip(table, row, strict=True)))}\n" for row in _rows(table))


def _json_array(tables: "Iterable[Table]") -> Iterator[str]:
    separator = "[\n"
    for line in json_lines(tables):
        yield f"{separator}{line.rstrip()}"
        separator = ",\n"
    yield "\n]\n"


def _write_parquet(tables: "Iterable[Table]", temporary: Path, path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    writer = None
    try:
        for table in tables:
            columns = {name: pyarrow.array(_values(column)) for name, column in table.items()}
            part = pyarrow.table(columns)
            writer = writer or parquet.ParquetWriter(temporary, part.schema)
            cast = [_cast(part[field.name], field, path) for field in writer.schema]
            writer.write_table(pyarrow.table(cast, writer.schema))
    finally:
        if writer is not None:
            writer.close()


def _cast(column: Any, field: Any, path: Path) -> Any:
    """Return a column in the type of its first part."""
    try:
        return column.cast(field.type)
    except ValueError as error:  # ArrowInvalid of pyarrow
        reason = f"column {field.name} begins as {field.type} and continues as {column.type}; save it as .csv or .jsonl"
        raise OptionError("save", path, reason) from error


def _values(column: Sequence[Any] | np.ndarray) -> Sequence[Any] | np.ndarray:
    return list(column) if isinstance(column, range) else column


def _rows(table: "Table") -> Iterator[tuple[Any, ...]]:
    """Return the rows of a table as Python's numbers and texts; an empty cell is an empty text."""
    return zip(*map(_plain, table.values()), strict=True)


def _plain(column: Sequence[Any] | np.ndarray) -> Sequence[Any]:
    """Return a column as Python's numbers and texts. Numbers in float32 have the digits that single precision needs."""
    if isinstance(column, np.ndarray):
        return [float(text) for text in column.astype(str)] if column.dtype == np.float32 else column.tolist()
    return column


def check_place(save: Path | None, data: Any) -> None:
    """Raise `OptionError` if the table would replace the file that is read."""
    source = path_of(str(data))
    if save is not None and save.exists() and source.exists() and save.samefile(source):
        raise OptionError("save", save, "is the file with the inputs; choose another one")
