"""Helpers that several figures share: the task of a run, titles, and the CSV files that callbacks record."""

import csv
import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.cells.base import RecurrentCell
from gyral.config.plain import plain_values
from gyral.core.errors import OptionError
from gyral.core.files import plain_text
from gyral.nn.recurrent import RecurrentBase
from gyral.plotting.layout import finish
from gyral.plotting.style import add_legend, without_formulas
from gyral.runs.directory import Run
from gyral.runs.names import model_name, row_names
from gyral.runs.provenance import read_overrides
from gyral.runs.run_record import by_key, task_of
from gyral.runs.saved_files import LARGEST_LOG, read_text
from gyral.tasks.base import Task

CHARACTERS_AN_INCH = 15  # in a title
MAX_FRAMES = 120  # of an animation, about 1 MB


def cells_of(task: Task) -> list[RecurrentCell]:
    """Return the recurrent cells of a task in the order of its layers."""
    return [module for module in task.modules() if isinstance(module, RecurrentCell)]


def name_cells(task: Task) -> dict[str, RecurrentCell]:
    """Return `cells_of` by name: "layer 2", "layer 1, backward", "layer 1, slow" for a cell of a cell."""
    directions = {name: module.directions for name, module in task.named_modules() if isinstance(module, RecurrentBase)}
    found = {}
    for path, module in task.named_modules():
        if not isinstance(module, RecurrentCell):
            continue
        network, _, place = path.rpartition(".cells.")
        words = [path.removeprefix("model.")]
        if network in directions:
            index, _, part = place.partition(".")
            layer, direction = divmod(int(index), directions[network])
            words = [network.removeprefix("model.").removesuffix("recurrent"), f"layer {layer + 1}"]
            words += ["backward" if direction else "forward"] if directions[network] > 1 else []
            words.append(part)
        found[", ".join(word.strip(".").replace(".", " ") for word in words if word)] = module
    return found


def first_batch(task: Task, split: str) -> Any:
    """Return the first batch of a split on the device of a task, which is the GPU if the run's trainer uses one."""
    return task.transfer_batch_to_device(next(iter(task.data.loader(split))), task.device, 0)


def missing_part_error(run: Run, task: Task, part: str, example: str = "RUMCell") -> OptionError:
    """Return the error for a run whose cell does not have a part that the figure shows; `example` is one that does."""
    names = ", ".join(sorted({type(cell).__name__ for cell in cells_of(task)}))
    return OptionError("run", run.directory, f"the figure needs a cell with {part}, such as {example}; this is {names}")


def add_title(figure: Figure, run: Run, subject: str) -> None:
    """Add a title to a figure: the model and task of the run, and the subject of the figure on the next line."""
    width = int(figure.get_figwidth() * CHARACTERS_AN_INCH)
    figure.suptitle("\n".join(fill(line, width) for line in (without_formulas(describe_run(run)), subject)))


def finish_plane(figure: Figure, axes: Axes, run: Run, subject: str) -> None:
    """Add title, legend and ticks to a figure of one plane, whose limits are final."""
    add_title(figure, run, subject)
    add_legend(figure, *axes.get_legend_handles_labels())
    finish([axes], integer_x=False)


def animate_plane(
    run: Run, figure: Figure, axes: Axes, steps: Sequence[int], draw: Callable[[int], None], subject: str
) -> Iterator[Figure]:
    """Yield a figure once for each recorded validation, but for at most `MAX_FRAMES` of them, at equal distances.

    Args:
        run: the run.
        figure, axes: the figure and its plane.
        steps: the number of optimizer steps at each validation.
        draw: draws a validation in the empty plane, given its index, with limits that are the same for all.
        subject: the subject of the figure.
    """
    for place in np.unique(np.linspace(0, len(steps) - 1, MAX_FRAMES).round().astype(int)):
        axes.clear()
        draw(place)
        title = f"{subject} at step {steps[place]:,}"
        if not figure.legends:
            finish_plane(figure, axes, run, title)
            figure.set_layout_engine("none")  # keeps the layout, which takes most of the time of a frame
        add_title(figure, run, title)
        yield figure


def describe_run(run: Run) -> str:
    """Return the model and the task of a run as text, such as "RUM λ = 1 on recall"."""
    config = plain_values(run.config)
    return f"{model_name(config)} on {task_of(config)}"


def name_runs(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs in one figure: those of their rows in a report.

    Runs whose names are equal also show their seeds, and if these are equal too, their directories.
    """
    configs = [plain_values(run.config) for run in runs]
    overrides = [by_key(read_overrides(run.directory)) for run in runs]
    names = row_names([*zip(configs, overrides, strict=True)])
    seeds, directories = [f"seed {config['seed']}" for config in configs], [str(run.directory) for run in runs]
    for further in (seeds, directories):
        equal = [names.count(name) > 1 for name in names]
        names = [f"{name}, {own}" if same else name for name, own, same in zip(names, further, equal, strict=True)]
    return [*map(without_formulas, names)]


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
