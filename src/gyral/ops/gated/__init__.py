"""Recurrences whose step is one matrix product and functions of single rows, over a whole sequence.

Cells call `run`. `Arguments`, `Results` and `Gradients` are the interface of the kernels in `cpu`, which is imported on
first use. `reference` has the equations in plain torch, `operators` the kernels for compilers.
"""

from gyral.ops.gated.arguments import (
    KEEPS_PRODUCT,
    KINDS,
    MODULES,
    Arguments,
    Gradients,
    Results,
    weight_gradient,
)
from gyral.ops.gated.sequence import run, unsupported_reason

__all__ = [
    "KEEPS_PRODUCT",
    "KINDS",
    "MODULES",
    "Arguments",
    "Gradients",
    "Results",
    "run",
    "unsupported_reason",
    "weight_gradient",
]
