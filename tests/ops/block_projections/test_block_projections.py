"""`gyral.ops.block_projections` against dense matrices; test_contract.py has what every operator keeps."""

from typing import Any

import torch
from torch import Tensor

from gyral.ops.block_projections import block_projections
from gyral.ops.sequences import zero_beyond
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, channels: int, size: int, heads: int) -> tuple[Named, Named]:
    shapes = {
        "convolved": (steps, batch, channels),
        "values": (steps, batch, channels),
        "weight": (3, -(-channels // size), size, size),
        "weight_gates": (2 * heads, 3 * channels),
        "bias_gates": (2 * heads,),
    }
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}, {"heads": heads}


def run(starts: Tensor | None, **given: Any) -> tuple[Tensor, ...]:
    """Call the operator: its steps are independent of each other, and need no starts."""
    return block_projections(**given)


def by_dense_matrices(
    convolved: Tensor,
    values: Tensor,
    weight: Tensor,
    weight_gates: Tensor,
    bias_gates: Tensor,
    heads: int,
    lengths: Tensor | None,
    starts: Tensor | None,
) -> tuple[Tensor, ...]:
    channels = values.shape[-1]
    dense = [torch.block_diag(*blocks)[:channels, :channels] for blocks in weight]
    parts = [convolved @ dense[0].T, convolved @ dense[1].T, values @ dense[2].T]
    gates = bias_gates + sum(
        part @ each.T for part, each in zip(parts, weight_gates.split(channels, dim=1), strict=True)
    )
    v = torch.cat((parts[2].unflatten(-1, (heads, -1)), torch.ones(*values.shape[:2], heads, 1)), dim=-1)
    q, k, v, gates = (zero_beyond(each, lengths) for each in (*parts[:2], v.flatten(2), gates))
    return q, k, v.unflatten(-1, (heads, -1)), gates


CONTRACT = Contract(
    run=run,
    draw=drawn,
    # T, B, C, b, H: a single number, blocks of a register, smaller and larger ones, not full, several tiles
    sizes=[(1, 1, 1, 1, 1), (3, 2, 32, 4, 4), (7, 5, 36, 3, 2), (2, 3, 21, 20, 3), (40, 3, 10, 4, 5)],
    small=(9, 19, 12, 5, 2),
    tiny=(2, 2, 4, 3, 2),
    truth=by_dense_matrices,
)
