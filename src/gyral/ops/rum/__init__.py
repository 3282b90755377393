"""RUM over a whole sequence.

Cells call `run`. `Arguments`, `Results`, `Gradients` and `Kernels` are the interface of the kernels in `cpu` and
`triton`, which are imported on first use. `reference` computes the same in readable functions of torch;
`operators` has the operators that `torch.compile` and `torch.export` see.
"""

from gyral.ops.rum.sequence import (
    MODULES,
    Arguments,
    Gradients,
    Kernels,
    Options,
    Results,
    run,
    subcell_arguments,
    unsupported_reason,
)

__all__ = [
    "MODULES",
    "Arguments",
    "Gradients",
    "Kernels",
    "Options",
    "Results",
    "run",
    "subcell_arguments",
    "unsupported_reason",
]
