"""The kernel of RUM's memory target (Fig. 5A of Dangovski et al., TACL 2019)."""

import numpy as np
from matplotlib.figure import Figure

from gyral.cells.rum import RUMCell
from gyral.figures.common import add_title, cells_of, missing_part_error
from gyral.plotting.sizes import WIDTHS
from gyral.runs.directory import Run
from gyral.training import build


def target_kernel(run: Run) -> Figure:
    """Draw W_hh^τ of every RUM cell in the model (Fig. 5A)."""
    task, step = build.load_trained(run, "best")
    cells = [cell for cell in cells_of(task) if isinstance(cell, RUMCell)]
    if not cells:
        raise missing_part_error(run, task, "a memory target")
    figure = Figure(figsize=(WIDTHS["column"] * len(cells), 3.1), layout="constrained")
    add_title(figure, run, rf"memory target's kernel $W_{{hh}}^τ$, step {step:,}")
    for axes, cell in zip(figure.subplots(1, len(cells), squeeze=False).flat, cells, strict=True):
        kernel = cell.weight_hh[: cell.hidden_size].detach().cpu().numpy()
        largest = np.abs(kernel).max()
        picture = axes.imshow(kernel, cmap="RdBu_r", vmin=-largest, vmax=largest)
        axes.set(xlabel="unit of the hidden state h", ylabel="unit of the memory target τ")
        figure.colorbar(picture, label="weight", shrink=0.85)
    return figure
