"""`gyral.ops.block_scan` against the equations in numpy; test_contract.py has what every operator keeps."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gyral.ops.block_scan import block_scan
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, size: int, block: int) -> tuple[Named, Named]:
    """Return the rows of A, values and the state before the first step."""
    shapes = (steps, batch, size, block), (steps, batch, size), (batch, size)
    change, values, h0 = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return {"change": change / 2, "values": values, "h0": h0}, {}


def scan(values: Tensor, starts: Tensor | None, **given: Any) -> tuple[Tensor, Tensor]:
    fresh = torch.zeros(values.shape[1], dtype=torch.int64)
    return block_scan(values=values[:1] if starts is None else values, fresh=fresh, starts=starts, **given)


def in_numpy(
    change: Tensor, values: Tensor, h0: Tensor, lengths: Tensor | None, starts: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row, one step and one unit at a time."""
    (steps, batch, size, block), final = change.shape, h0.numpy().copy()
    outputs = np.zeros(values.shape)
    for row in range(batch):
        for time in range(steps if lengths is None else int(lengths[row])):
            before = final[row].copy()
            for unit in range(size):
                own = before[unit // block * block :][:block]
                final[row, unit] += change[time, row, unit, : len(own)].numpy() @ own
            if starts is not None and starts[time, row]:
                final[row] = values[time, row]
            outputs[time, row] = final[row]
    return outputs, final


CONTRACT = Contract(
    run=scan,
    draw=drawn,
    # T, B, N, b: one step, one row, whole blocks, a block that is not full, blocks of one unit, and one block
    sizes=[(1, 1, 1, 1), (7, 5, 6, 2), (9, 2, 7, 4), (12, 3, 17, 16), (8, 2, 5, 1), (6, 1, 5, 5), (5, 2, 3, 8)],
    small=(9, 19, 5, 3),
    tiny=(4, 2, 3, 2),
    states=["h0"],
    truth=in_numpy,
    single=1e-4,
)
