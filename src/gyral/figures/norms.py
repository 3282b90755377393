"""Norms of gradients and hidden states during training (Fig. 6 of Dangovski et al., TACL 2019)."""

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.figures.common import add_title, read_numbers
from gyral.plotting.layout import finish, set_limits
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS, add_legend
from gyral.runs.directory import Run
from gyral.runs.metrics_file import read_metrics
from gyral.training.callbacks.norms import Norms


def norms(run: Run) -> Figure:
    """Draw the norms that the callback `Norms` recorded (Fig. 6).

    The upper panels show the norms of the gradient and of the last hidden state during training. The lower panels show,
    for each cell, the norm of the gradient with respect to the hidden state at each time step, at some validations.
    """
    steps, gradients = read_step_gradients(run.directory)
    columns = max(2, len(gradients))
    figure = Figure(figsize=(WIDTHS["page"] * columns / 2, 4.2), layout="constrained")
    add_title(figure, run, f"norms of gradients and hidden states, up to step {steps[-1]:,}")
    grid = figure.add_gridspec(2, 2 * columns)
    panels = []
    for place, (name, label) in enumerate(
        (("train/gradient_norm", "gradient"), ("train/hidden_norm", "last hidden state"))
    ):
        axes = figure.add_subplot(grid[0, place * columns : (place + 1) * columns])
        logged, values = (np.array(numbers, dtype=float) for numbers in read_metrics(run.directory, name))
        axes.plot(logged, values, color=COLORS[0])
        axes.set(xlabel="training step", ylabel=f"norm of the {label}")
        panels.append((axes, logged, values))
    width = 2 * columns // len(gradients)
    chosen = _choose(len(steps))
    for place, (cell, values) in enumerate(gradients.items()):
        axes = figure.add_subplot(grid[1, place * width : (place + 1) * width])
        _draw_step_gradients(axes, steps, values[chosen], chosen)
        axes.set(xlabel=_time_label(cell, len(gradients)), ylabel="norm of ∂loss/∂hidden")
        panels.append((axes, np.arange(values.shape[1]), values[chosen].ravel()))
    for axes, x, y in panels:
        axes.grid()
        set_limits(axes, "x", x, log=False, bounds=(0, x.max(initial=1)))
        set_limits(axes, "y", y, log=bool((y > 0).any()), bounds=None)
    add_legend(figure, *panels[-1][0].get_legend_handles_labels())
    finish([axes for axes, _, _ in panels], integer_x=True)
    return figure


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
