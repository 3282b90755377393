"""Helpers that several figures share: the task of a run, titles, and the CSV files that callbacks record."""

import csv
from inspect import signature
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from hydra.utils import get_object
from matplotlib.figure import Figure
from omegaconf import DictConfig

from gyral.cells.base import RecurrentCell
from gyral.core.errors import OptionError
from gyral.runs.directory import Run
from gyral.tasks.base import SequenceTask
from gyral.training import build

TITLE_WIDTH = 64  # characters per line


def build_untrained(run: Run) -> SequenceTask:
    """Return the task of a run with its initial weights."""
    build.configure_process(run.config)
    return build.build_task(run.config)


def cells_of(task: SequenceTask) -> list[RecurrentCell]:
    """Return the recurrent cells of a task in the order of its layers."""
    return [module for module in task.modules() if isinstance(module, RecurrentCell)]


def missing_part_error(run: Run, task: SequenceTask, part: str) -> OptionError:
    """Return the error for a run whose cell does not have a part that the figure shows."""
    names = ", ".join(sorted({type(cell).__name__ for cell in cells_of(task)}))
    return OptionError("run", run.directory, f"the figure needs a cell with {part}, such as RUMCell; this is {names}")


def add_title(figure: Figure, run: Run, subject: str) -> None:
    """Add a title to a figure: the task and model of the run, and the subject of the figure on the next line."""
    task = run.config.task["_target_"].rpartition(".")[2]
    figure.suptitle(f"{fill(f'{task}, {describe_model(run.config.model)}', TITLE_WIDTH)}\n{subject}", fontsize="medium")


def describe_model(node: Any) -> str:
    """Return a configuration node as text. A class is its name and the options that differ from its defaults."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        return str(node)
    defaults = {name: option.default for name, option in signature(get_object(node["_target_"])).parameters.items()}
    given = [name for name, default in defaults.items() if name in node and node[name] != default]
    options = ", ".join(f"{name}={describe_model(node[name])}" for name in given)
    return f"{node['_target_'].rpartition('.')[2]}({options})"


def read_numbers(directory: Path, name: str, callback: str) -> tuple[list[str], np.ndarray]:
    """Return the header and the complete rows of a CSV file that a callback recorded in a run directory.

    Args:
        directory: the run directory.
        name: the file.
        callback: the choice of the config group `callbacks` that records it.

    Raises:
        OptionError: The file does not exist or has no row.
    """
    if not (directory / name).is_file():
        raise OptionError("run", directory, f"has no {name}, which is recorded by training with callbacks={callback}")
    with (directory / name).open(newline="") as file:
        header, *rows = csv.reader(file)
    rows = [row for row in rows if len(row) == len(header)]  # a crash can leave an incomplete last row
    if not rows:
        raise OptionError("run", directory, f"stopped before its first validation; {name} is empty")
    return header, np.array(rows, dtype=float)
