"""Networks of several recurrences per step, over a whole sequence.

`run` is the function that cells call; `Problem`, `Solution` and `Gradients` are the interface of the kernels in `cpu`,
which is imported on first use.
"""

from gyral.ops.fast_slow.problem import MODULES, Connections, Gradients, Problem, Solution, SubCell
from gyral.ops.fast_slow.sequence import run, unsupported_reason

__all__ = [
    "MODULES",
    "Connections",
    "Gradients",
    "Problem",
    "Solution",
    "SubCell",
    "run",
    "unsupported_reason",
]
