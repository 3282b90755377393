"""A GRU whose recurrent input is gathered along typed edges, over a whole sequence.

Cells call `run`. `Arguments`, `Results` and `Gradients` are the interface of the kernels in `cpu`, which is imported on
first use. `reference` has the equations in plain torch.
"""

from gyral.ops.graph_gru.arguments import MODULES, Arguments, Gradients, Results, latest
from gyral.ops.graph_gru.sequence import run, unsupported_reason

__all__ = [
    "MODULES",
    "Arguments",
    "Gradients",
    "Results",
    "latest",
    "run",
    "unsupported_reason",
]
