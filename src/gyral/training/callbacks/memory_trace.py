"""Records the reads and writes of an external memory during one example."""

from typing import Any

import numpy as np
from pytorch_lightning import Trainer

from gyral.core.errors import UserError
from gyral.models.memory_trace import MemoryTrace, memory_cells, trace_memory
from gyral.nn.recurrent import RecurrentBase
from gyral.training.callbacks.after_validation import AfterValidation


class MemoryTraces(AfterValidation):
    """After each validation, appends to memory_trace.csv what the memory does during one validation example.

    It is the longest example of the first batch, which is run once more, step by step.
    Each row is a validation: `step`, the index of the last optimizer step, from 0, then for each time step t of the
    example, from 0, the values that the cell has: `read_x/<t>` and `read_y/<t>`, the key of the read head;
    `write_x/<t>`, `write_y/<t>` and `strength/<t>`, the key and the strength of the vector that is written, only where
    the memory may be written; `gate/<name>/<t>`. A resumed run continues the file as it does metrics.csv.
    """

    FILE = "memory_trace.csv"

    def check_task(self, task: Any) -> None:
        """Check that this callback supports the task's model.

        Raises:
            UserError: no cell of the model has an external memory.
        """
        if not memory_cells(task):
            networks = (module for module in task.modules() if isinstance(module, RecurrentBase))
            names = {type(cell).__name__ for network in networks for cell in network.cells}
            raise UserError(
                f"callbacks.memory_trace: {', '.join(sorted(names))} has no external memory; use it with a LANTMCell"
            )

    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        if trainer.is_global_zero:  # other processes may have no row of the batch
            self.write(trainer, to_row(trace_memory(task, batch)))


def to_row(trace: MemoryTrace) -> dict[str, float]:
    """Return the values of a trace by the names of their columns; see `MemoryTraces`."""
    series: dict[str, np.ndarray] = {}
    if trace.keys is not None:
        read, write, strength, _ = trace.keys
        series |= {"read_x": read[:, 0], "read_y": read[:, 1]}
        written = {"write_x": write[:, 0], "write_y": write[:, 1], "strength": strength}
        series |= {name: np.ma.masked_where(~trace.writable, values) for name, values in written.items()}
    series |= {f"gate/{name}": values for name, values in trace.gates.items()}
    return {
        f"{name}/{step}": value
        for name, values in series.items()
        for step, value in enumerate(values.tolist())  # None where masked
        if value is not None
    }
