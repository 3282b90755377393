"""The kernels of memory target and update gate, and of the gates of other cells (Fig. 5A of Dangovski et al., 2019)."""

import numpy as np
from matplotlib.figure import Figure

from gyral.cells.base import RecurrentCell
from gyral.cells.torch_layer import TorchLayerCell
from gyral.figures.common import add_title, missing_part_error, name_cells
from gyral.plotting.sizes import WIDTHS
from gyral.runs.directory import Run
from gyral.training import build

SOURCES = {"weight_hh": "h", "weight_ih": "x"}  # the vector that a kernel multiplies


def target_kernel(run: Run) -> Figure:
    """Draw the kernels of every cell in the model: for RUM those of target τ and gate u against h and x (Fig. 5A).

    If the model has several cells, such as one for each layer, the title of a row names its cell.
    """
    task, step = build.load_trained(run, "best")
    cells = {name: kernels for name, cell in name_cells(task).items() if (kernels := kernels_of(cell))}
    if not cells:
        raise missing_part_error(run, task, "kernels of a hidden state and an input")
    rows = [(cell, source) for cell in cells for source in SOURCES]
    columns = max(len(kernels[source]) for kernels in cells.values() for source in SOURCES)
    size = WIDTHS["column"] * max(0.8 * columns, 1), 2.4 * len(rows)
    figure = Figure(figsize=size, layout="constrained")
    add_title(figure, run, f"kernels, step {step:,}")
    for place, (cell, source) in enumerate(rows):
        for column, (name, kernel) in enumerate(cells[cell][source].items()):
            axes = figure.add_subplot(len(rows), columns, place * columns + column + 1)
            largest = np.abs(kernel).max()
            picture = axes.imshow(kernel, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
            axes.set(xlabel=f"unit of {SOURCES[source]}", ylabel=f"unit of {name}")
            figure.colorbar(picture, label="weight", shrink=0.85)
            if column == 0 and len(cells) > 1:
                axes.set_title(cell, loc="left")
    return figure


def kernels_of(cell: RecurrentCell) -> dict[str, dict[str, np.ndarray]]:
    """Return the kernels (N, …) of a cell by `SOURCES` and by name; empty for a cell without `kernel_rows`."""
    if not cell.kernel_rows:
        return {}
    names = [name for name in cell.kernel_rows if name != "u" or getattr(cell, "update_gate", True)]
    owner, suffix = (cell.layer, "_l0") if isinstance(cell, TorchLayerCell) else (cell, "")
    found = {}
    for source in SOURCES:
        # an attribute and no entry of `named_parameters`, which lacks a parametrized weight, such as with `weight_drop`
        blocks = getattr(owner, source + suffix).split(cell.hidden_size)
        found[source] = {name: block.detach().cpu().numpy() for name, block in zip(names, blocks, strict=False)}
    return found
