"""Helpers that several figures share: the task of a run, titles, and the CSV files that callbacks record."""

import csv
import io
import os
from pathlib import Path
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure

from gyral.cells.base import RecurrentCell
from gyral.config.plain import plain_values
from gyral.core.errors import OptionError
from gyral.core.files import plain_text
from gyral.plotting.style import without_formulas
from gyral.runs.directory import Run
from gyral.runs.names import model_name
from gyral.runs.run_record import task_of
from gyral.runs.saved_files import LARGEST_LOG, read_text
from gyral.tasks.base import Task
from gyral.training import build

CHARACTERS_AN_INCH = 15  # in a title


def build_untrained(run: Run) -> Task:
    """Return the task of a run with its initial weights."""
    build.configure_process(run.config)
    return build.build_task(run.config)


def cells_of(task: Task) -> list[RecurrentCell]:
    """Return the recurrent cells of a task in the order of its layers."""
    return [module for module in task.modules() if isinstance(module, RecurrentCell)]


def missing_part_error(run: Run, task: Task, part: str, example: str = "RUMCell") -> OptionError:
    """Return the error for a run whose cell does not have a part that the figure shows; `example` is one that does."""
    names = ", ".join(sorted({type(cell).__name__ for cell in cells_of(task)}))
    return OptionError("run", run.directory, f"the figure needs a cell with {part}, such as {example}; this is {names}")


def add_title(figure: Figure, run: Run, subject: str) -> None:
    """Add a title to a figure: the model and task of the run, and the subject of the figure on the next line."""
    width = int(figure.get_figwidth() * CHARACTERS_AN_INCH)
    figure.suptitle("\n".join(fill(line, width) for line in (without_formulas(describe_run(run)), subject)))


def describe_run(run: Run) -> str:
    """Return the model and the task of a run as text, such as "RUM λ = 1 on recall"."""
    config = plain_values(run.config)
    return f"{model_name(config)} on {task_of(config)}"


def read_numbers(directory: Path, name: str, callback: str) -> tuple[list[str], np.ndarray]:
    """Return the header and the complete rows of a CSV file that a callback recorded in a run directory.

    A value that is missing in a row is NaN.

    Args:
        directory: the run directory.
        name: the file.
        callback: the choice of the config group `callbacks` that records it.

    Raises:
        OptionError: The file does not exist or has no row.
    """
    path = directory / name
    if not os.path.lexists(path):
        raise OptionError("run", directory, f"has no {name}, which is recorded by training with callbacks={callback}")
    header, *rows = csv.reader(io.StringIO(read_text(path, LARGEST_LOG), newline=""))
    rows = [row for row in rows if len(row) == len(header)]  # a crash can leave an incomplete last row
    if not rows:
        raise OptionError("run", directory, f"stopped before its first validation; {name} is empty")
    return [*map(plain_text, header)], np.array([[value or "nan" for value in row] for row in rows], dtype=float)
