"""The distribution of cos θ during training (Fig. 5 B, C of Dangovski et al., TACL 2019)."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from gyral.reports.figures.common import add_title, build_untrained, cells_of, missing_part_error, read_numbers
from gyral.runs.directory import Run
from gyral.training.callbacks import Cosines


def cosines(run: Run) -> Figure:
    """Draw the distribution of cos θ_t during training, as recorded by the callback `Cosines` (Fig. 5 B, C)."""
    task = build_untrained(run)
    if not any(hasattr(cell, "record_cosines") for cell in cells_of(task)):
        raise missing_part_error(run, task, "record_cosines")
    steps, centers, shares = read_cosines(run.directory)
    width = centers[1] - centers[0]
    chosen = sorted({0, (len(steps) - 1) // 2, len(steps) - 1})

    figure = Figure(figsize=(7.5, 6), layout="constrained")
    add_title(figure, run, f"angle θ between embedded input and memory target, up to step {steps[-1]}")
    grid = figure.add_gridspec(2, len(chosen), height_ratios=(3, 2))
    axes = figure.add_subplot(grid[0, :])
    # a column covers the steps since the previous validation
    picture = axes.pcolormesh([0, *steps], np.linspace(-1, 1, len(centers) + 1), shares.T, cmap="viridis", vmin=0)
    axes.set(xlabel="optimizer steps", ylabel="cos θ")
    figure.colorbar(picture, label="share of time steps")
    first = None
    for column, index in enumerate(chosen):
        first = axes = figure.add_subplot(grid[1, column], sharey=first)
        axes.bar(centers, shares[index], width)
        axes.set(xlabel="cos θ", xlim=(-1, 1))
        axes.set_title(f"step {steps[index]}", fontsize="medium")
        axes.label_outer()
        axes.grid(alpha=0.3)
    figure.axes[2].set_ylabel("share of time steps")
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
