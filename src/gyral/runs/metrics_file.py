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
    path = directory / METRICS
    text = read_text(path, LARGEST_LOG)
    with _located_errors(path):
        heads = map(plain_text, next(csv.reader(io.StringIO(text, newline="")), []))
        return [name for name in heads if name != "step"]


def read_curves(directory: Path, names: Sequence[str]) -> tuple[dict[str, tuple[list[int], list[float]]], bool]:
    """Return steps and values of each metric, as `read_metrics` does, and whether the file's last line is cut off.

    A line that is cut off is left out.

    Raises:
        UserError: the file does not contain steps and numbers.
    """
    curves: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in names}
    path = directory / METRICS
    text = read_text(path, LARGEST_LOG)
    with _located_errors(path):
        complete = text[: text.rfind("\n") + 1]
        reader = csv.reader(complete.splitlines())
        header = [*map(plain_text, next(reader, []))]
        if header and "step" not in header:
            raise ValueError("has no column step")
        columns = [(header.index(name), *curves[name]) for name in names if name in header]
        step_column = header.index("step") if columns else 0
        for row in reader:
            for column, steps, values in columns:
                if column < len(row) and row[column]:
                    step, value = int(row[step_column]), float(row[column])
                    if not is_number(step):
                        raise ValueError("has a step that is too large")
                    steps.append(step + 1)
                    values.append(
                        value if is_number(value) or not math.isfinite(value) else math.copysign(math.inf, value)
                    )
    return curves, complete != text


def read_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and the complete rows of metrics.csv; a line that a crash has cut off lacks columns.

    Raises:
        UserError: the file does not contain steps.
    """
    text = read_text(path, LARGEST_LOG)
    with _located_errors(path):
        reader = csv.DictReader(io.StringIO(text, newline=""))
        reader.fieldnames = [*map(plain_text, reader.fieldnames or ["step"])]
        rows = [row for row in reader if None not in row.values() and None not in row]
        for row in rows:
            int(row["step"])
        return list(reader.fieldnames), rows


@contextmanager
def _located_errors(path: Path) -> Iterator[None]:
    """Raise `UserError` with the name of the file for an error of its content."""
    try:
        yield
    except (csv.Error, ValueError, LookupError) as error:
        reason = f"has no column {error}" if isinstance(error, KeyError) else error
        raise UserError(f"{path}: is damaged: {reason}; if you remove it, a resumed run writes a new one") from None
