"""Norms of gradients and hidden states during training (Fig. 6 of Dangovski et al., TACL 2019)."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.config.plain import plain_values
from gyral.figures.common import add_title, read_numbers
from gyral.plotting.layout import finish, set_limits
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS, add_legend, without_formulas
from gyral.runs.directory import Run
from gyral.runs.metrics_file import read_metrics
from gyral.runs.names import model_name
from gyral.training.callbacks.norms import Norms, hidden_metric


def norms(*runs: Run) -> Figure:
    """Draw the norms that the callback `Norms` recorded in one or several runs (Fig. 6).

    The upper panels show the norms of the gradient, and of the last hidden state of each cell, during training. The
    lower panels show, for each run and cell, the norm of the gradient with respect to the hidden state at each time
    step, at some validations.
    """
    recorded = [read_step_gradients(run.directory) for run in runs]
    names = ["" if len(runs) == 1 else without_formulas(model_name(plain_values(run.config))) for run in runs]
    columns = max(2, *(len(gradients) for _, gradients in recorded))
    figure = Figure(figsize=(WIDTHS["page"] * columns / 2, 2.1 * (1 + len(runs))), layout="constrained")
    if len(runs) == 1:
        add_title(figure, runs[0], f"norms of gradients and hidden states, up to step {recorded[0][0][-1]:,}")
    grid = figure.add_gridspec(1 + len(runs), 2 * columns)
    panels = []
    for place, label in enumerate(("gradient", "last hidden state")):
        axes = figure.add_subplot(grid[0, place * columns : (place + 1) * columns])
        curves: list[tuple[str, np.ndarray, np.ndarray]] = []
        for run, name, (_, gradients) in zip(runs, names, recorded, strict=True):
            own = _curves(run, name, gradients)[label]
            curves += [(key, np.array(steps, float), np.array(values, float)) for key, (steps, values) in own.items()]
        for index, (key, x, y) in enumerate(curves):
            axes.plot(x, y, label=key, color=COLORS[index % len(COLORS)])
        if len(curves) > 1:
            axes.legend(fontsize="x-small")
        axes.set(xlabel="training step", ylabel=f"norm of the {label}")
        panels.append((axes, np.concatenate([x for _, x, _ in curves]), np.concatenate([y for *_, y in curves])))
    for row, (name, (steps, gradients)) in enumerate(zip(names, recorded, strict=True), start=1):
        width, chosen = 2 * columns // len(gradients), _choose(len(steps))
        for place, (cell, values) in enumerate(gradients.items()):
            axes = figure.add_subplot(grid[row, place * width : (place + 1) * width])
            _draw_step_gradients(axes, steps, values[chosen], chosen)
            axes.set(xlabel=_time_label(cell, len(gradients)), ylabel="norm of ∂loss/∂hidden")
            axes.set_title(name, fontsize="small")
            panels.append((axes, np.arange(values.shape[1]), values[chosen].ravel()))
    for axes, x, y in panels:
        axes.grid()
        set_limits(axes, "x", x, log=False, bounds=(0, x.max(initial=1)))
        set_limits(axes, "y", y, log=bool((y > 0).any()), bounds=None)
    add_legend(figure, *panels[-1][0].get_legend_handles_labels())
    finish([axes for axes, _, _ in panels], integer_x=True)
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
    if not any(steps for steps, _ in hidden.values()):  # a run from before cells had a curve each
        hidden = {"": read_metrics(run.directory, "train/hidden_norm")}
    labels = {cell: ", ".join(filter(None, (name, cell.removeprefix("recurrent.")))) for cell in hidden}
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
        color = colormaps["viridis"](0.9 * shade / max(len(chosen) - 1, 1))
        axes.plot(values[shade], label=f"after step {steps[index]:,}", color=color)


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
