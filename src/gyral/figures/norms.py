"""Norms of gradients and hidden states during training (Fig. 6 of Dangovski et al., TACL 2019)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.config.plain import plain_values
from gyral.figures.common import add_title, read_numbers
from gyral.plotting.layout import finish, place_markers, set_limits
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import DASHES, add_legend, cell_styles, without_formulas
from gyral.runs.directory import Run
from gyral.runs.metrics_file import read_metrics
from gyral.runs.names import model_name
from gyral.runs.run_record import cell_of
from gyral.training.callbacks.norms import Norms, hidden_metric


def norms(*runs: Run) -> Figure:
    """Draw the norms that the callback `Norms` recorded in one or several runs (Fig. 6).

    The upper panels show the norms of the gradient, and of the last hidden state of each cell, during training. The
    lower panels show, for each run and cell, the norm of the gradient with respect to the hidden state at each time
    step, at some validations; they share their limits.
    """
    recorded = [read_step_gradients(run.directory) for run in runs]
    configs = [plain_values(run.config) for run in runs]
    names = ["" if len(runs) == 1 else without_formulas(model_name(config)) for config in configs]
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
            own = _curves(run, name, gradients)[label]
            curves += [(key, np.array(steps, float), np.array(values, float)) for key, (steps, values) in own.items()]
            cells += [cell_of(config)] * len(own)
        for (key, x, y), look in zip(curves, cell_styles(cells), strict=True):
            axes.plot(x, y, label=key, gid="row", **look)
        axes.set(xlabel="training step", ylabel=f"norm of the {label}")
        panels.append((axes, np.concatenate([x for _, x, _ in curves]), np.concatenate([y for *_, y in curves])))
    for row, (name, (steps, gradients)) in enumerate(zip(names, recorded, strict=True), start=1):
        width, chosen = 2 * columns // len(gradients), _choose(len(steps))
        for place, (cell, values) in enumerate(gradients.items()):
            axes = figure.add_subplot(grid[row, place * width : (place + 1) * width])
            _draw_step_gradients(axes, steps, values[chosen], chosen)
            axes.set(xlabel=_time_label(cell, len(gradients)), ylabel="norm of ∂loss/∂hidden")
            axes.set_title(name)
            panels.append((axes, np.arange(values.shape[1]), values[chosen].ravel()))
    along_time = np.concatenate([y for *_, y in panels[2:]])
    for axes, x, y in panels:
        axes.grid()
        set_limits(axes, "x", x, log=False, bounds=(0, x.max(initial=1)))
        shown = y if axes in (panels[0][0], panels[1][0]) else along_time
        set_limits(axes, "y", shown, log=bool((shown > 0).any()), bounds=None)
    entries: dict[str, Any] = {}
    for axes in (panels[0][0], panels[1][0], panels[-1][0]):
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    add_legend(figure, list(entries.values()), list(entries))
    finish([axes for axes, _, _ in panels], integer_x=True)
    for axes, _, _ in panels[:2]:
        place_markers(axes)
    return figure


Curve = tuple[list[int], list[float]]  # steps and values


def _curves(run: Run, name: str, cells: Iterable[str]) -> dict[str, dict[str, Curve]]:
    """Return the curves of the upper panels of a run by panel and label.

    Args:
        run: the run.
        name: its name in labels, empty for a single run.
        cells: the names of its cells.
    """
    hidden = {cell: read_metrics(run.directory, hidden_metric(cell)) for cell in cells}
    of_cells = {cell: cell.removeprefix("recurrent.") if len(hidden) > 1 else "" for cell in hidden}
    labels = {cell: ", ".join(filter(None, (name, of_cells[cell]))) for cell in hidden}
    return {
        "gradient": {name: read_metrics(run.directory, "train/gradient_norm")},
        "last hidden state": {labels[cell]: curve for cell, curve in hidden.items()},
    }


def _choose(validations: int) -> list[int]:
    """Return the indices of at most four validations, with the first and the last one."""
    last = validations - 1
    return sorted({0, last // 3, 2 * last // 3, last})


def _time_label(cell: str, cells: int) -> str:
    """Return the label of the time axis of a cell; a single cell needs no name."""
    return "time step" if cells == 1 else f"time step of {cell.removeprefix('recurrent.').replace('.', ' ')}"


def _draw_step_gradients(axes: Axes, steps: list[int], values: np.ndarray, chosen: list[int]) -> None:
    """Draw the gradient's norm (validations, T) of a cell over time steps."""
    for shade, index in enumerate(chosen):
        color = colormaps["viridis"](0.75 * shade / max(len(chosen) - 1, 1))
        axes.plot(values[shade], label=f"after step {steps[index]:,}", color=color, linestyle=DASHES[shade])


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
