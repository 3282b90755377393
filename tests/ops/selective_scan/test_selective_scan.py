"""`gyral.ops.selective_scan` against the equations in numpy; test_contract.py has what every operator keeps."""

import numpy as np
import torch
from torch import Tensor

from gyral.ops.selective_scan import selective_scan
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, channels: int, size: int) -> tuple[Named, Named]:
    """Return u, Δ, A, B, C and the state before the first step."""
    shapes = (steps, batch, channels), (steps, batch, channels), (channels, size), *[(steps, batch, size)] * 2
    u, delta, a, b, c = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    h0 = torch.randn(batch, channels, size, dtype=torch.float64)
    return {"u": u, "delta": delta.exp() / 4, "a": -a.exp(), "b": b, "c": c, "h0": h0}, {}


def in_numpy(lengths: Tensor | None, starts: Tensor | None, **given: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row and one step at a time."""
    u, delta, a, b, c, final = (tensor.numpy().copy() for tensor in given.values())
    outputs = np.zeros_like(u)
    for row in range(u.shape[1]):
        for time in range(len(u) if lengths is None else int(lengths[row])):
            if starts is not None and starts[time, row]:
                final[row] = 0
            drive = np.outer(delta[time, row] * u[time, row], b[time, row])
            final[row] = np.exp(delta[time, row][:, None] * a) * final[row] + drive
            outputs[time, row] = final[row] @ c[time, row]
    return outputs, final


CONTRACT = Contract(
    run=selective_scan,
    draw=drawn,
    # T, B, D, N: one step, one row, whole chunks of 16 steps, one step more, and every remainder of a vector
    sizes=[(1, 1, 1, 1), (7, 5, 3, 2), (16, 2, 16, 4), (17, 3, 17, 3), (40, 4, 9, 5), (33, 2, 33, 1)],
    small=(35, 19, 5, 3),
    tiny=(4, 2, 2, 2),
    states=["h0"],
    truth=in_numpy,
)
