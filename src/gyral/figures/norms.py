"""Norms of gradients and hidden states during training (Fig. 6 of Dangovski et al., TACL 2019)."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from gyral.config.plain import plain_values
from gyral.figures.common import add_title, name_runs, read_numbers
from gyral.plotting.layout import finish, place_markers, set_limits
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import DASHES, add_legend, cell_styles
from gyral.runs.directory import Run
from gyral.runs.metrics_file import read_metrics
from gyral.runs.run_record import cell_of
from gyral.training.callbacks.norms import Norms, hidden_metric


def norms(*runs: Run) -> Figure:
    """Draw the norms that the callback `Norms` recorded in one or several runs (Fig. 6).

    The upper panels show the norms of the gradient, and of the last hidden state of each cell, during training. The
    lower panels show, for each run and cell, the norm of the gradient with respect to the hidden state at each time
    step, at some validations; they share their limits, and the color and dashes of a training step.
    """
    recorded = [read_step_gradients(run.directory) for run in runs]
    configs = [plain_values(run.config) for run in runs]
    names = [""] if len(runs) == 1 else name_runs(runs)
    columns = max(2, *(len(gradients) for _, gradients in recorded))
    figure = Figure(figsize=(WIDTHS["page"] * columns / 2, 2.1 * (1 + len(runs))), layout="constrained")
    if len(runs) == 1:
        add_title(figure, runs[0], f"norms of gradients and hidden states, up to step {recorded[0][0][-1]:,}")
    grid = figure.add_gridspec(1 + len(runs), 2 * columns)
    panels = []
    for place, label in enumerate(("gradient", "last hidden state")):
        axes = figure.add_subplot(grid[0, place * columns : (place + 1) * columns])
        curves: list[tuple[str, np.ndarray, np.ndarray]] = []
        cells: list[str] = []
        for run, config, name, (_, gradients) in zip(runs, configs, names, recorded, strict=True):
            metrics = {name: "train/gradient_norm"} if place == 0 else _hidden_metrics(name, [*gradients])
            if place and not any(read_metrics(run.directory, metric)[0] for metric in metrics.values()):
                metrics = {name: "train/hidden_norm"}  # version 0.2.0 had one curve for all cells
            for key, metric in metrics.items():
                x, y = (np.array(numbers, dtype=float) for numbers in read_metrics(run.directory, metric))
                curves.append((key, x, y))
                cells.append(cell_of(config))
        for (key, x, y), look in zip(curves, cell_styles(cells), strict=True):
            axes.plot(x, y, label=key, gid="row", **look)
        axes.set(xlabel="training step", ylabel=f"norm of the {label}")
        panels.append((axes, np.concatenate([x for _, x, _ in curves]), np.concatenate([y for *_, y in curves])))
    chosen = [sorted({part * (len(steps) - 1) // 3 for part in range(4)}) for steps, _ in recorded]  # validations
    looks = _looks({steps[index] for (steps, _), own in zip(recorded, chosen, strict=True) for index in own})
    for row, (name, (steps, gradients), own) in enumerate(zip(names, recorded, chosen, strict=True), start=1):
        width = 2 * columns // len(gradients)
        for place, (cell, values) in enumerate(gradients.items()):
            axes = figure.add_subplot(grid[row, place * width : (place + 1) * width])
            for index in own:
                look = looks[steps[index]]
                axes.plot(values[index], label=f"after step {steps[index]:,}", **look)
                if len(alone := isolated_points(values[index])):  # no line reaches them
                    axes.plot(alone, values[index, alone], **{**look, "linestyle": "none", "marker": "."})
            of_cell = "" if len(gradients) == 1 else f" of {cell.removeprefix('recurrent.').replace('.', ' ')}"
            axes.set(xlabel=f"time step{of_cell}", ylabel="norm of ∂loss/∂hidden")
            axes.set_title(name)
            panels.append((axes, np.arange(values.shape[1]), values[own].ravel()))
    along_time = np.concatenate([y for *_, y in panels[2:]])
    for axes, x, y in panels:
        axes.grid()
        set_limits(axes, "x", x, log=False, bounds=(0, x.max(initial=1)))
        shown = y if axes in (panels[0][0], panels[1][0]) else along_time
        set_limits(axes, "y", shown, log=bool((shown > 0).any()), bounds=None)
    entries = _lines_by_label([axes for axes, _, _ in panels])
    entries |= {label: entries.pop(label) for label in (f"after step {step:,}" for step in looks)}  # in their order
    add_legend(figure, list(entries.values()), list(entries))
    finish([axes for axes, _, _ in panels], integer_x=True)
    for axes, _, _ in panels[:2]:
        place_markers(axes)
    return figure


def _looks(steps: set[int]) -> dict[int, dict[str, Any]]:
    """Return the color and the dashes of the validation after each of a number of steps, in the order of the steps."""
    colors = colormaps["viridis"](0.75 * np.arange(len(steps)) / max(len(steps) - 1, 1))
    return {
        step: {"color": to_hex(colors[place]), "linestyle": DASHES[place % len(DASHES)]}
        for place, step in enumerate(sorted(steps))
    }


def _lines_by_label(panels: list[Axes]) -> dict[str, Any]:
    """Return the lines of panels by their labels, one for each label."""
    found: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    return found


def _hidden_metrics(name: str, cells: list[str]) -> dict[str, str]:
    """Return the metric of each cell of a run by its label; a single cell needs no name, and a single run neither."""
    own = {cell: cell.removeprefix("recurrent.") if len(cells) > 1 else "" for cell in cells}
    return {", ".join(filter(None, (name, own[cell]))): hidden_metric(cell) for cell in cells}


def isolated_points(values: np.ndarray) -> np.ndarray:
    """Return the indices of the finite values (T,) whose neighbors are not finite."""
    finite = np.pad(np.isfinite(values), 1)
    return np.flatnonzero(finite[1:-1] & ~finite[:-2] & ~finite[2:])


def read_step_gradients(directory: Path) -> tuple[list[int], dict[str, np.ndarray]]:
    """Read the file step_gradients.csv of a run.

    Returns:
        The number of optimizer steps at each validation, and for each cell the norms (validations, T). A norm of 0 is
        returned as NaN.

    Raises:
        OptionError: The file does not exist or holds no validation.
    """
    header, values = read_numbers(directory, Norms.FILE, "norms")
    cells = dict.fromkeys(name.rpartition("/")[0] for name in header[1:])
    # the axis is logarithmic, and a gradient that vanished has no logarithm
    norms = np.where(values > 0, values, np.nan)
    return [int(step) + 1 for step in values[:, 0]], {
        cell: norms[:, [place for place, name in enumerate(header) if name.rpartition("/")[0] == cell]]
        for cell in cells
    }
