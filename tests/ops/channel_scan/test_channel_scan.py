"""`gyral.ops.channel_scan` against the equations in numpy; test_contract.py has what every operator keeps."""

import numpy as np
import torch
from torch import Tensor

from gyral.ops.channel_scan import channel_scan
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, channels: int, size: int) -> tuple[Named, Named]:
    """Return x, λ, w and the state before the first step."""
    radius, angle = torch.rand(channels, size, dtype=torch.float64), 3 * torch.randn(channels, size).double()
    decay = torch.stack((radius * angle.cos(), radius * angle.sin()))
    shapes = (steps, batch, channels), (2, channels, size), (batch, 2, channels, size)
    x, readout, h0 = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return {"x": x, "decay": decay, "readout": readout, "h0": h0}, {}


def in_numpy(
    x: Tensor, decay: Tensor, readout: Tensor, h0: Tensor, lengths: Tensor | None, starts: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row and one step at a time."""
    a, w, final = (parts[0] + 1j * parts[1] for parts in (decay.numpy(), readout.numpy(), h0.transpose(0, 1).numpy()))
    outputs = np.zeros(x.shape)
    for row in range(x.shape[1]):
        for time in range(len(x) if lengths is None else int(lengths[row])):
            if starts is not None and starts[time, row]:
                final[row] = 0
            final[row] = a * final[row] + x[time, row].numpy()[:, None]
            outputs[time, row] = (w * final[row]).real.sum(1)
    return outputs, np.stack((final.real, final.imag), 1)


CONTRACT = Contract(
    run=channel_scan,
    draw=drawn,
    # T, B, N, P: one step, one row, whole chunks of 32 steps, one step more, and whole and partial tiles of 16 channels
    sizes=[(1, 1, 1, 1), (7, 5, 3, 2), (32, 2, 16, 4), (33, 3, 17, 3), (70, 4, 9, 5), (65, 2, 33, 1)],
    small=(40, 19, 5, 3),
    tiny=(4, 2, 2, 2),
    states=["h0"],
    truth=in_numpy,
    exact=1e-11,
    single=2e-5,
)
