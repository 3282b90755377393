"""Lie-access memories: their Lie groups and read vectors, and a controller with this memory over a whole sequence.

Cells call `run`. `Arguments`, `Results` and `Gradients` are the interface of the kernels in `cpu`, which is imported on
first use.
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
