"""`gyral.ops.min_gated` against the equations in numpy; test_contract.py has what every operator keeps."""

import numpy as np
import torch
from torch import Tensor

from gyral.ops.min_gated import min_gated
from tests.helpers.loops import for_each
from tests.ops.contract import Contract, Named, assert_close, each


def drawn(steps: int, batch: int, size: int, gates: int) -> tuple[Named, Named]:
    """Return projected inputs and the state before the first step."""
    projected = 2 * torch.randn(steps, batch, (1 + gates) * size, dtype=torch.float64)
    return {"projected": projected, "h0": torch.randn(batch, size, dtype=torch.float64)}, {}


def in_numpy(
    projected: Tensor, h0: Tensor, lengths: Tensor | None, starts: Tensor | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and final state: the equations, one row and one step at a time."""

    def sigma(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    final, size = h0.numpy().copy(), h0.shape[1]
    outputs = np.zeros((*projected.shape[:2], size))
    for row in range(len(final)):
        for time in range(len(projected) if lengths is None else int(lengths[row])):
            c, *gates = np.split(projected[time, row].numpy(), projected.shape[2] // size)
            z = sigma(gates[0]) if len(gates) == 1 else sigma(gates[1]) / (sigma(gates[0]) + sigma(gates[1]))
            before = 0 if starts is not None and starts[time, row] else final[row]
            outputs[time, row] = final[row] = (1 - z) * before + z * np.where(c >= 0, c + 0.5, sigma(c))
    return outputs, final


CONTRACT = Contract(
    run=min_gated,
    draw=drawn,
    kinds=each(gates=[1, 2]),
    sizes=[(1, 1, 1), (7, 5, 3), (4, 2, 16), (5, 3, 17), (3, 4, 33), (2, 9, 64)],  # T, B, N
    small=(9, 19, 5),
    tiny=(4, 2, 2),
    states=["h0"],
    truth=in_numpy,
)


@for_each("gates", [1, 2])
def test_saturated_and_extreme_gates(gates: int) -> None:
    large = torch.tensor([60.0, -60.0, 0.0, 80.0, -80.0], dtype=torch.float64)
    case = CONTRACT.case((1, 1, len(large) ** (1 + gates)), {"gates": gates}, False, False)
    case.tensors["projected"] = torch.cartesian_prod(*[large] * (1 + gates)).mT.flatten().view(1, 1, -1)
    truth = case.results(CONTRACT.plain)
    for dtype, tolerance in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        assert_close(case.results(dtype=dtype), truth, tolerance)
        for value in (-1e4, 1e4):
            extreme = CONTRACT.case((3, 2, 4), {"gates": gates})
            extreme.tensors["projected"].fill_(value)
            assert all(found.isfinite().all() for found in extreme.results(dtype=dtype).values())
