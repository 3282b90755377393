"""Lie-access memories: their groups and readings, and a controller with such a memory over a whole sequence.

`run` is the function that cells call; `Arguments`, `Results` and `Gradients` are the interface of the kernels in `cpu`,
which is imported on first use.
"""

from gyral.ops.lie_access.arguments import (
    MODULES,
    Arguments,
    Gradients,
    MemoryState,
    Options,
    Results,
    Weights,
    memory_full_error,
)
from gyral.ops.lie_access.sequence import run, unsupported_reason

__all__ = [
    "MODULES",
    "Arguments",
    "Gradients",
    "MemoryState",
    "Options",
    "Results",
    "Weights",
    "memory_full_error",
    "run",
    "unsupported_reason",
]
