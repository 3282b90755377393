"""Reading of metrics.csv."""

import csv
from collections.abc import Sequence
from pathlib import Path

from gyral.runs.directory import METRICS


def read_metrics(directory: Path, name: str) -> tuple[list[int], list[float]]:
    """Return the steps (numbers of optimizer steps taken) and values at which a metric was logged in metrics.csv."""
    return read_curves(directory, (name,))[0][name]


def logged_metrics(directory: Path) -> list[str]:
    """Return the names of the metrics in metrics.csv."""
    with (directory / METRICS).open(newline="") as file:
        return [name for name in next(csv.reader(file), []) if name != "step"]


def read_curves(directory: Path, names: Sequence[str]) -> tuple[dict[str, tuple[list[int], list[float]]], bool]:
    """Return steps and values of each metric, as `read_metrics` does, and whether the file's last line is cut off.

    A line that is cut off is left out.

    Raises:
        ValueError: the file does not contain steps and numbers.
    """
    curves: dict[str, tuple[list[int], list[float]]] = {name: ([], []) for name in names}
    with (directory / METRICS).open(newline="") as file:
        text = file.read()
    complete = text[: text.rfind("\n") + 1]
    reader = csv.reader(complete.splitlines())
    header = next(reader, [])
    if header and "step" not in header:
        raise ValueError(f"{METRICS} has no column step")
    columns = [(header.index(name), *curves[name]) for name in names if name in header]
    step_column = header.index("step") if columns else 0
    for row in reader:
        for column, steps, values in columns:
            if column < len(row) and row[column]:
                steps.append(int(row[step_column]) + 1)
                values.append(float(row[column]))
    return curves, complete != text
