"""`gyral.ops.diagonal` against the recurrence in numpy; test_contract.py has what every operator keeps."""

import numpy as np
import torch
from torch import Tensor

from gyral.ops.diagonal import diagonal_scan
from tests.ops.contract import Contract, Named, each


def drawn(steps: int, batch: int, size: int, is_complex: bool, is_constant: bool) -> tuple[Named, Named]:
    """Return values, decay and the state before the first step."""
    width = 2 * size if is_complex else size
    decay = 1.4 * torch.rand((width,) if is_constant else (steps, batch, width), dtype=torch.float64) - 0.7
    values, h0 = (torch.randn(*of, width, dtype=torch.float64) for of in ((steps, batch), (batch,)))
    return {"values": values, "decay": decay, "h0": h0}, {"is_complex": is_complex}


def in_numpy(
    values: Tensor, decay: Tensor, h0: Tensor, lengths: Tensor | None, starts: Tensor | None, is_complex: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equation, one row and one step at a time."""

    def number(tensor: Tensor) -> np.ndarray:
        array = tensor.numpy()
        return np.stack(np.split(array, 2, -1), -1) @ [1, 1j] if is_complex else array

    b, a, final = map(number, (values, decay, h0))
    a, final, outputs = np.broadcast_to(a, b.shape), final.copy(), np.zeros_like(b)
    for row in range(b.shape[1]):
        for time in range(len(b) if lengths is None else int(lengths[row])):
            before = 0 if starts is not None and starts[time, row] else final[row]
            outputs[time, row] = final[row] = a[time, row] * before + b[time, row]
    if is_complex:
        return tuple(np.concatenate((array.real, array.imag), -1) for array in (outputs, final))
    return outputs, final


CONTRACT = Contract(
    run=diagonal_scan,
    draw=drawn,
    kinds=each(is_complex=[False, True], is_constant=[False, True]),
    sizes=[(1, 1, 1), (7, 5, 3), (4, 2, 16), (5, 3, 17), (3, 4, 33), (2, 9, 64)],  # T, B, N
    small=(9, 19, 5),
    tiny=(4, 2, 2),
    states=["h0"],
    truth=in_numpy,
)


def test_a_decay_close_to_one_is_kept_in_float32() -> None:
    steps = 2000
    outputs, _ = diagonal_scan(torch.zeros(steps, 1, 1), torch.full((1,), 0.999), torch.ones(1, 1))
    torch.testing.assert_close(outputs[-1].item(), 0.999**steps, rtol=1e-4, atol=0)
