"""The example that the figures of external memories show."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gyral.reports.figures.common import missing_part_error
from gyral.runs.directory import Run
from gyral.tasks.base import SequenceTask
from gyral.tasks.memory_trace import MemoryTrace, memory_cells, trace_memory
from gyral.training import build

READ_ONLY: dict[str, Any] = {"color": "#ececec", "linewidth": 0, "zorder": 0}


def load_trace(run: Run) -> tuple[SequenceTask, int, MemoryTrace]:
    """Return a run's trained task, its number of optimizer steps, and the trace of its first validation example.

    Raises:
        OptionError: No cell of the run has an external memory.
    """
    task, step = build.load_trained(run, "best")
    if not memory_cells(task):
        raise missing_part_error(run, task, "an external memory", "LANTMCell")
    return task, step, trace_memory(task, next(iter(task.data.loader("val"))))


def shade_read_only(axes: Axes, writable: np.ndarray) -> None:
    """Shade the steps of a time axis at which the memory may not be written; `writable` is (T,) bool."""
    edges = np.flatnonzero(np.diff(np.concatenate(([True], writable, [True])).astype(int)))
    for first, end in edges.reshape(-1, 2):
        axes.axvspan(first - 0.5, end - 0.5, **READ_ONLY)
