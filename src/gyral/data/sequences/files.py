"""Files with columns, by their suffix."""

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

from gyral.core.errors import OptionError
from gyral.core.inputs import check_file, is_packed, suffix_of
from gyral.data.sequences.columns import ColumnFile, JsonFile, NumpyFile, ParquetFile
from gyral.data.sequences.csv_columns import CsvFile

FORMS = "a .csv, .tsv, .npz, .parquet, .jsonl or .json file, or a folder of .parquet files"
SUFFIXES = (".csv", ".tsv", ".npz", ".parquet", ".jsonl", ".json")
PACKABLE = (".csv", ".tsv", ".jsonl", ".json")


def open_columns(path: str | Path, named: Collection[str] = ()) -> ColumnFile:
    """Open a file of columns by its suffix.

    Args:
        path: path of the file.
        named: the columns that other options than the inputs name, see `gyral.data.sequences.csv_columns.CsvFile`.

    Raises:
        OptionError: the file does not exist or cannot be read.
        UserError: the package that reads it is not installed.
    """
    path = Path(path)
    readers: dict[str, Callable[[Path], ColumnFile]] = {
        **dict.fromkeys((".csv", ".tsv"), partial(CsvFile, named=named)),
        ".npz": NumpyFile,
        ".parquet": ParquetFile,
        ".jsonl": JsonFile,
        ".json": JsonFile,
    }
    return readers[checked_suffix(path)](path)


def checked_suffix(path: Path) -> str:
    """Return the suffix of a file of columns in lower case; that of a folder is .parquet.

    Raises:
        OptionError: the file does not exist, or its suffix says that it is something else.
    """
    suffix = ".parquet" if path.is_dir() else suffix_of(path)
    if suffix not in SUFFIXES or (is_packed(path) and suffix not in PACKABLE):
        raise OptionError("data", path, f"must be {FORMS}")
    if not path.is_dir():
        check_file("data", path)
    return suffix
