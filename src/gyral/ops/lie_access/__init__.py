"""Lie-access memories: their groups and readings, and a controller with such a memory over a whole sequence.

`run` is the function that cells call; `Problem`, `Solution` and `Gradients` are the interface of the kernels in `cpu`,
which is imported on first use.
"""

from gyral.ops.lie_access.problem import (
    MODULES,
    Gradients,
    MemoryState,
    Options,
    Problem,
    Solution,
    Weights,
    memory_full_error,
)
from gyral.ops.lie_access.sequence import run, unsupported_reason

__all__ = [
    "MODULES",
    "Gradients",
    "MemoryState",
    "Options",
    "Problem",
    "Solution",
    "Weights",
    "memory_full_error",
    "run",
    "unsupported_reason",
]
