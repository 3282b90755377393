"""RUM over a whole sequence.

`run` is the function that cells call; `Problem`, `Solution`, `Gradients` and `Kernels` are the interface of the kernels
in `cpu` and `triton`, which are imported on first use. `reference` computes the same in readable functions of torch;
`operators` has the operators that `torch.compile` and `torch.export` see.
"""

from gyral.ops.rum.sequence import (
    MODULES,
    Gradients,
    Kernels,
    Options,
    Problem,
    Solution,
    run,
    subcell_problem,
    unsupported_reason,
)

__all__ = [
    "MODULES",
    "Gradients",
    "Kernels",
    "Options",
    "Problem",
    "Solution",
    "run",
    "subcell_problem",
    "unsupported_reason",
]
