"""Reading of metrics.csv."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gyral.core.errors import UserError
from gyral.core.files import plain_text
from gyral.core.measures import is_number
from gyral.runs.directory import METRICS
from gyral.runs.saved_files import LARGEST_LOG, read_text


def read_metrics(directory: Path, name: str) -> tuple[list[int], list[float]]:
    """Return the steps (numbers of optimizer steps taken) and values at which a metric was logged in metrics.csv."""
    return read_curves(directory, (name,))[0][name]


def logged_metrics(directory: Path) -> list[str]:
    """Return the names of the metrics in metrics.csv."""
    with _opened(directory / METRICS) as (columns, _, _):
        return [name for name in columns if name != "step"]


def read_curves(directory: Path, names: Sequence[str]) -> tuple[dict[str, tuple[list[int], list[float]]], bool]:
    """Return steps and values of each metric, as `read_metrics` does, and whether the file's last line is cut off.

    Raises:
        UserError: the file does not contain steps and numbers.
    """
    curves: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in names}
    with _opened(directory / METRICS) as (header, rows, cut_off):
        columns = [(header.index(name), *curves[name]) for name in names if name in header]
        step_column = header.index("step") if columns else 0
        for row in rows:
            for column, steps, values in columns:
                if column < len(row) and row[column]:
                    step, value = int(row[step_column]), float(row[column])
                    if not is_number(step):
                        raise ValueError("has a step that is too large")
                    steps.append(step + 1)
                    values.append(
                        value if is_number(value) or not math.isfinite(value) else math.copysign(math.inf, value)
                    )
    return curves, cut_off


def read_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and the complete rows of metrics.csv.

    Raises:
        UserError: the file does not contain steps.
    """
    with _opened(path) as (columns, lines, _):
        rows = [dict(zip(columns, line, strict=True)) for line in lines if len(line) == len(columns)]
        for row in rows:
            int(row["step"])
        return columns, rows


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]], bool]]:
    """Yield the columns and the rows of metrics.csv, without a last line that is cut off, and whether there is one.

    Raises:
        UserError: the body raises an error of the content; it gets the name of the file.
    """
    text = read_text(path, LARGEST_LOG)
    try:
        complete = text[: text.rfind("\n") + 1]
        reader = csv.reader(io.StringIO(complete, newline=""))
        columns = [*map(plain_text, next(reader, ["step"]))]
        if "step" not in columns:
            raise ValueError("has no column step")
        yield columns, reader, complete != text
    except (csv.Error, ValueError, LookupError) as error:
        raise UserError(f"{path}: is damaged: {error}; if you remove it, a resumed run writes a new one") from None
