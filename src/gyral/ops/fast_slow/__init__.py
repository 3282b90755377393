"""Networks of several recurrences per step, over a whole sequence.

Cells call `run`. `Arguments`, `Results` and `Gradients` are the interface of the kernels in `cpu`, which is imported on
first use.
"""

from gyral.ops.fast_slow.arguments import MODULES, Arguments, Connections, Gradients, Results, SubCell
from gyral.ops.fast_slow.sequence import run, unsupported_reason

__all__ = [
    "MODULES",
    "Arguments",
    "Connections",
    "Gradients",
    "Results",
    "SubCell",
    "run",
    "unsupported_reason",
]
