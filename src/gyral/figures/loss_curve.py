"""The losses of one run, drawn at its end. Imports no torch."""

from pathlib import Path
from typing import Any

import numpy as np

from gyral.core.measures import loss_unit
from gyral.plotting.layout import finish, make_grid, set_limits
from gyral.plotting.style import BASELINE, COLORS, add_legend, save, style
from gyral.runs.metrics_file import logged_metrics, read_metrics

FILE = "loss.png"
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "training": ("train/loss", {"color": COLORS[0], "linewidth": 1.0}),
    "validation": ("val/loss", {"color": COLORS[1], "marker": "o", "markersize": 3, "linestyle": (0, (5, 1.5))}),
}


def plot_losses(directory: Path) -> Path:
    """Plot training and validation loss and the memoryless baseline of a run; return the picture's path.

    Args:
        directory: the run directory, which has a metrics.csv.
    """
    with style():
        figure, [axes] = make_grid(1, "page", share_x=False, share_y=False, height=2.6)
        drawn: list[np.ndarray] = []
        for label, (name, look) in LOOKS.items():
            steps, values = (np.array(numbers, dtype=float) for numbers in read_metrics(directory, name))
            axes.plot(steps, values, label=label, **look)
            drawn += [steps, values]
        _, baseline = read_metrics(directory, "train/baseline")
        if baseline:
            axes.axhline(baseline[0], label=f"memoryless baseline ({baseline[0]:.3g})", **BASELINE)
        losses = np.concatenate([*drawn[1::2], baseline[:1]])
        axes.set(xlabel="training step", ylabel=f"loss ({loss_unit(logged_metrics(directory))})")
        set_limits(axes, "x", np.concatenate([[0.0], *drawn[::2]]), log=False, bounds=(0, np.inf))
        set_limits(axes, "y", losses, log=bool((losses > 0).any()), bounds=None)
        add_legend(figure, *axes.get_legend_handles_labels())
        finish([axes], integer_x=True)
        save(figure, directory / FILE, directory.name)
    return directory / FILE
