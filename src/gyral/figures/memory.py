"""The example that the figures of external memories show."""

import numpy as np

from gyral.figures.common import missing_part_error
from gyral.models.memory_trace import MemoryTrace, memory_cells, trace_memory
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
    return task, step, trace_memory(task, next(iter(task.data.loader("val"))))


def read_only_spans(writable: np.ndarray) -> np.ndarray:
    """Return where a memory may not be written, the ends (n, 2) of n spans of a time axis; `writable` is (T,) bool."""
    return np.flatnonzero(np.diff(np.concatenate(([True], writable, [True])).astype(int))).reshape(-1, 2) - 0.5
