"""The distribution of cos θ during training (Fig. 5 B, C of Dangovski et al., TACL 2019)."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.figures.common import add_title, cells_of, missing_part_error, read_numbers
from gyral.plotting.layout import finish
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS
from gyral.runs.directory import Run
from gyral.training import build
from gyral.training.callbacks.cosines import Cosines


def cosines(run: Run) -> Figure:
    """Draw the distribution of cos θ_t during training, as recorded by the callback `Cosines` (Fig. 5 B, C)."""
    build.configure_process(run.config)
    task = build.build_task(run.config)
    if not any(hasattr(cell, "record_cosines") for cell in cells_of(task)):
        raise missing_part_error(run, task, "record_cosines")
    steps, centers, shares = read_cosines(run.directory)
    chosen, with_map = sorted({0, (len(steps) - 1) // 2, len(steps) - 1}), len(steps) > 1
    size = (WIDTHS["page"], 4.4) if with_map else (WIDTHS["column"], 2.4)
    figure = Figure(figsize=size, layout="constrained")
    add_title(figure, run, "angle θ between embedded input and memory target")
    grid = figure.add_gridspec(1 + with_map, len(chosen), height_ratios=(3, 2) if with_map else None)
    if with_map:
        axes = figure.add_subplot(grid[0, :])
        # the distribution at a validation reaches half way to the validations before and after it
        picture = axes.pcolormesh(steps, centers, shares.T, shading="nearest", cmap="viridis", vmin=0)
        axes.set(xlabel="training step", ylabel="cos θ", ylim=(-1, 1))
        figure.colorbar(picture, label="share of time steps")
        finish([axes], integer_x=True)
    panels: list[Axes] = []
    for column, index in enumerate(chosen):
        axes = figure.add_subplot(grid[-1, column], sharey=panels[0] if panels else None)
        axes.bar(centers, shares[index], centers[1] - centers[0], color=COLORS[0])
        axes.set(xlabel="cos θ", xlim=(-1, 1), title=f"step {steps[index]:,}")
        axes.label_outer()
        axes.grid()
        panels.append(axes)
    panels[0].set_ylabel("share of time steps")
    finish(panels, integer_x=False)
    return figure


def read_cosines(directory: Path) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Read the file cosines.csv of a run.

    Returns:
        The number of optimizer steps at each validation, the bin centers (bins), and the shares (validations, bins).

    Raises:
        OptionError: The file does not exist or holds no validation.
    """
    header, values = read_numbers(directory, Cosines.FILE, "cosines")
    return [int(step) + 1 for step in values[:, 0]], np.array(header[1:], dtype=float), values[:, 1:]
