"""The gates of a cell with an external memory, and how much its heads use each slot, over time for one example."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.figures.common import add_title, first_batch, missing_part_error
from gyral.models.memory_trace import MemoryTrace, memory_cells, trace_memory
from gyral.plotting.layout import finish
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS
from gyral.runs.directory import Run
from gyral.tasks.base import SequenceTask
from gyral.training import build


def load_trace(run: Run) -> tuple[SequenceTask, int, MemoryTrace]:
    """Return a run's trained task, its number of optimizer steps, and the trace of a validation example.

    It is the longest example of the first batch.

    Raises:
        OptionError: No cell of the run has an external memory.
    """
    task, step = build.load_trained(run, "best")
    if not memory_cells(task):
        raise missing_part_error(run, task, "an external memory", "LANTMCell")
    return task, step, trace_memory(task, first_batch(task, "val"))


def read_only_spans(writable: np.ndarray) -> np.ndarray:
    """Return where a memory may not be written, the ends (n, 2) of n spans of a time axis; `writable` is (T,) bool."""
    return np.flatnonzero(np.diff(np.concatenate(([True], writable, [True])).astype(int))).reshape(-1, 2) - 0.5


def gates(run: Run) -> Figure:
    """Draw the gates of a validation example over time, a panel for each.

    Raises:
        OptionError: The cells of the run have no external memory, or one without gates.
    """
    figure, panels, spans, found = _panels(run, "gates", "; gray: no writing", 6.0, (0.36, 0.62))
    for axes, (name, values) in zip(panels, found.items(), strict=True):
        for first, end in spans:
            axes.axvspan(first, end, color="#ececec", linewidth=0, zorder=0)
        edges = np.arange(len(values) + 1) - 0.5
        axes.stairs(values, edges, fill=True, color=COLORS[0], alpha=0.25)
        axes.stairs(values, edges, baseline=None, color=COLORS[0], linewidth=1.2)
        axes.set(xlim=(edges[0], edges[-1]), ylim=(-0.06, 1.06), yticks=(0, 1))
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
    finish(panels, integer_x=True, y_is_numeric=False)
    return figure


def weightings(run: Run) -> Figure:
    """Draw the weightings of a validation example as an image for each head: slots by time steps.

    Raises:
        OptionError: The cells of the run have no external memory, or one without weightings.
    """
    figure, panels, spans, found = _panels(run, "weightings", "; between dotted lines: no writing", 7.0, (1.0, 1.9))
    largest = max(float(values.max()) for values in found.values()) or 1.0
    for axes, (name, values) in zip(panels, found.items(), strict=True):
        picture = axes.imshow(
            values.T, aspect="auto", origin="lower", interpolation="nearest", cmap="viridis", vmin=0, vmax=largest
        )
        for edge in spans.flat:
            axes.axvline(edge, color="white", linestyle=":", linewidth=1)
        axes.set(ylabel="slot", title=name)
    figure.colorbar(picture, ax=panels, label="weight", aspect=12 * len(panels))
    finish(panels, integer_x=True)
    return figure


def _panels(
    run: Run, part: str, note: str, total: float, heights: tuple[float, float]
) -> tuple[Figure, list[Axes], np.ndarray, dict[str, np.ndarray]]:
    """Return a figure with a panel for each gate or each weighting, the panels, `read_only_spans`, and the values.

    Args:
        run: the run.
        part: "gates" or "weightings".
        note: the end of the title if there are steps at which nothing may be written.
        total: inches of all panels, unless they would be lower than the smallest height.
        heights: inches, the smallest and the largest height of a panel.
    """
    task, step, trace = load_trace(run)
    found: dict[str, np.ndarray] = getattr(trace, part)
    if not found:
        raise missing_part_error(run, task, f"{part} of its memory", "LANTMCell")
    height = min(max(total / len(found), heights[0]), heights[1])
    figure = Figure(figsize=(WIDTHS["page"], 0.9 + height * len(found)), layout="constrained")
    spans = read_only_spans(trace.writable)
    add_title(figure, run, f"{part} of a validation example at step {step:,}{note if len(spans) else ''}")
    panels = list(figure.subplots(len(found), sharex=True, sharey=part == "gates", squeeze=False).flat)
    panels[-1].set_xlabel("time step")
    return figure, panels, spans, found
