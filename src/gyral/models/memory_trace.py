"""Traces of an external memory during one example, for callbacks, figures and pages."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from gyral.cells.memory import MemoryCell
from gyral.nn.recurrent import RecurrentBase


class Keys(NamedTuple):
    """Positions of the heads of a memory in the plane at each of T steps.

    Attributes:
        read, write: (T, 2), keys of the read head and of the write head.
        strength: (T,), strength of the last written vector.
        stored: (T,) integers, number of vectors in the memory.
    """

    read: np.ndarray
    write: np.ndarray
    strength: np.ndarray
    stored: np.ndarray


class MemoryTrace(NamedTuple):
    """The weights and gates of an external memory during the T steps of one example.

    Attributes:
        writable: (T,) bool, the steps at which the memory may be written.
        gates: values in [0, 1], (T,) by name.
        weightings: weights of each head for each slot, (T, slots) by name. A memory that appends has as many slots as
            its largest number of vectors, at least one; slots are those after the step.
        keys: None if the memory has no keys in a plane.
    """

    writable: np.ndarray
    gates: dict[str, np.ndarray]
    weightings: dict[str, np.ndarray]
    keys: Keys | None


def memory_cells(model: nn.Module) -> list[MemoryCell]:
    """Return the cells of a model that have an external memory, in the order of its layers."""
    networks = (module for module in model.modules() if isinstance(module, RecurrentBase))
    return [cell for network in networks for cell in network.cells if isinstance(cell, MemoryCell)]


@torch.no_grad()
def trace_memory(task: nn.Module, batch: Any) -> MemoryTrace:
    """Return the trace of the external memory for the first of the longest examples of a batch.

    The model runs once, step by step. If several cells have a memory, this is the trace of the first one.

    Args:
        task: a task whose model has at least one cell of `memory_cells`, in eval mode.
        batch: a batch with at least one example.
    """
    cell: Any = memory_cells(task)[0]
    lengths = getattr(batch, "lengths", None)
    row = 0 if lengths is None else int(lengths.argmax())
    batch = tree_map(lambda leaf: leaf[row : row + 1] if isinstance(leaf, Tensor) else leaf, batch)
    with cell.record_steps() as recorded:
        task(batch)
    steps = len(recorded) if lengths is None else int(lengths[row])
    # the steps are the rows of one batch
    outputs = torch.cat([step.output for step in recorded[:steps]])
    state = tree_map(lambda *leaves: torch.cat(leaves), *(step.state for step in recorded[:steps]))
    write = getattr(batch, "write", None)
    write = None if write is None else write[0, :steps]
    weightings = _arrays(cell.weightings(outputs, state, write)) if hasattr(cell, "weightings") else {}
    keys = Keys(*map(_array, cell.locations(state))) if hasattr(cell, "locations") else None
    if keys is not None:
        slots = max(1, int(keys.stored.max()))
        weightings = {name: value[:, :slots] for name, value in weightings.items()}
    gates = _arrays(cell.gates(outputs)) if hasattr(cell, "gates") else {}
    writable = np.ones(steps, dtype=bool) if write is None else _array(write)
    return MemoryTrace(writable, gates, weightings, keys)


def _arrays(values: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: _array(value) for name, value in values.items()}


def _array(values: Tensor) -> np.ndarray:
    return (values.float() if values.is_floating_point() else values).cpu().numpy()
