"""`gyral.ops.permutation_scan` against its steps; test_contract.py has what every operator keeps."""

import torch
from torch import Tensor

from gyral.ops.permutation_scan import permutation_scan, step
from gyral.ops.scan import scan
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, size: int, matrices: int) -> tuple[Named, Named]:
    """Return selection, dictionary, decay, values and the state before the first step."""
    shapes = {
        "selection": (steps, batch, matrices),
        "dictionary": (matrices, size, size),
        "decay": (steps, batch, 2 * size),
        "values": (steps, batch, 2 * size),
        "h0": (batch, 2 * size),
    }
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}, {}


def in_steps(
    selection: Tensor,
    dictionary: Tensor,
    decay: Tensor,
    values: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, Tensor]:
    def one_step(now: tuple[Tensor, ...], hidden: Tensor) -> tuple[Tensor, Tensor]:
        new = step(now[0], dictionary, *now[1:], hidden)
        return new, new

    return scan(one_step, (selection, decay, values), h0, lengths, starts, torch.zeros_like(h0))


CONTRACT = Contract(
    run=permutation_scan,
    draw=drawn,
    # T, B, N, K: one step, one row, one number, one matrix, and every remainder of a vector
    sizes=[(1, 1, 1, 1), (7, 5, 3, 2), (8, 2, 16, 1), (9, 3, 17, 3), (6, 1, 33, 2), (5, 2, 1, 4)],
    small=(9, 19, 5, 3),
    tiny=(4, 2, 3, 2),
    states=["h0"],
    unseen=["selection", "dictionary"],
    truth=in_steps,
    single=1e-4,
    is_smooth=lambda kind: False,  # the gradient is that of a softmax in place of the matrix
)
