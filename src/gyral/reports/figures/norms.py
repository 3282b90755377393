"""Norms of gradients and hidden states during training (Fig. 6 of Dangovski et al., TACL 2019)."""

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.reports.figures.common import add_title, read_numbers
from gyral.runs.directory import Run
from gyral.runs.metrics_file import read_metrics
from gyral.training.callbacks import Norms


def norms(run: Run) -> Figure:
    """Draw the norms that the callback `Norms` recorded (Fig. 6).

    The upper panels show the norms of the gradient and of the last hidden state during training. The lower panels show,
    for each cell, the norm of the gradient with respect to the hidden state at each time step, at some validations.
    """
    steps, gradients = read_step_gradients(run.directory)
    columns = max(2, len(gradients))
    figure = Figure(figsize=(3.6 * columns, 6), layout="constrained")
    add_title(figure, run, f"norms, up to step {steps[-1]}")
    grid = figure.add_gridspec(2, 2 * columns)
    for place, (name, label) in enumerate(
        (("train/gradient_norm", "gradient"), ("train/hidden_norm", "last hidden state"))
    ):
        axes = figure.add_subplot(grid[0, place * columns : (place + 1) * columns])
        axes.plot(*read_metrics(run.directory, name), linewidth=1.2)
        axes.set(xlabel="optimizer steps", ylabel=f"norm of the {label}", yscale="log")
        axes.grid(alpha=0.3)
    width = 2 * columns // len(gradients)
    for place, (cell, values) in enumerate(gradients.items()):
        _draw_step_gradients(figure.add_subplot(grid[1, place * width : (place + 1) * width]), cell, steps, values)
    return figure


def _draw_step_gradients(axes: Axes, cell: str, steps: list[int], values: np.ndarray) -> None:
    """Draw the gradient's norm (validations, T) of a cell over time steps, at no more than four validations."""
    last = len(steps) - 1
    chosen = sorted({0, last // 3, 2 * last // 3, last})
    for shade, index in enumerate(chosen):
        color = colormaps["viridis"](0.9 * shade / max(len(chosen) - 1, 1))
        axes.plot(values[index], label=f"after {steps[index]:,}", color=color, linewidth=1.2)
    axes.set(xlabel=f"time step of {cell}", ylabel="norm of ∂loss/∂hidden", yscale="log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", title="optimizer steps", title_fontsize="small")


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
