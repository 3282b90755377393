"""The gates of a cell with an external memory over time, for one example."""

import numpy as np
from matplotlib.figure import Figure

from gyral.figures.common import add_title, missing_part_error
from gyral.figures.memory import load_trace, read_only_spans
from gyral.plotting.layout import finish
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS
from gyral.runs.directory import Run

HEIGHTS = 0.36, 0.62  # inches, the smallest and the largest height of a panel
TOTAL = 6.0  # inches of all panels, unless they would be lower than the smallest height


def gates(run: Run) -> Figure:
    """Draw the gates of a validation example over time, a panel for each.

    Raises:
        OptionError: The cells of the run have no external memory, or one without gates.
    """
    task, step, trace = load_trace(run)
    if not trace.gates:
        raise missing_part_error(run, task, "gates of its memory", "LANTMCell")
    height = min(max(TOTAL / len(trace.gates), HEIGHTS[0]), HEIGHTS[1])
    figure = Figure(figsize=(WIDTHS["page"], 0.9 + height * len(trace.gates)), layout="constrained")
    note = "" if trace.writable.all() else "; gray: no writing"
    add_title(figure, run, f"gates of a validation example at step {step:,}{note}")
    panels = list(figure.subplots(len(trace.gates), sharex=True, sharey=True, squeeze=False).flat)
    edges = np.arange(len(trace.writable) + 1) - 0.5
    for axes, (name, values) in zip(panels, trace.gates.items(), strict=True):
        for first, end in read_only_spans(trace.writable):
            axes.axvspan(first, end, color="#ececec", linewidth=0, zorder=0)
        axes.stairs(values, edges, fill=True, color=COLORS[0], alpha=0.25)
        axes.stairs(values, edges, baseline=None, color=COLORS[0], linewidth=1.2)
        axes.set(xlim=(edges[0], edges[-1]), ylim=(-0.06, 1.06), yticks=(0, 1))
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
    panels[-1].set_xlabel("time step")
    finish(panels, integer_x=True, y_is_numeric=False)
    return figure
