"""`gyral.ops.rotation_scan` against equations in numpy; test_contract.py has what every operator keeps."""

import numpy as np
import torch
from torch import Tensor

from gyral.ops.rotation_scan import rotation_scan
from tests.helpers.loops import for_each
from tests.ops.contract import Contract, Named, each

ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softsign": lambda x: x / (1 + np.abs(x)),
}


def drawn(
    steps: int, batch: int, size: int, heads: int, width: int, *, activation: str = "tanh", double_angle: bool
) -> tuple[Named, Named]:
    """Return the parts of all steps, one of them zero, a memory and a hidden vector."""
    parts = torch.randn(steps, batch, 4 * size, dtype=torch.float64)
    if steps != TINY[0]:  # there, the derivatives are not those of finite differences
        parts[steps // 2, :1] = 0
    memory = torch.linalg.qr(torch.randn(batch, heads, width, width, dtype=torch.float64))[0]
    h0 = torch.randn(batch, size, dtype=torch.float64)
    return {"parts": parts, "memory": memory, "h0": h0}, {"activation": activation, "double_angle": double_angle}


def in_numpy(
    parts: Tensor,
    memory: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    starts: Tensor | None,
    double_angle: bool,
    activation: str,
) -> tuple[np.ndarray, ...]:
    """Return outputs, memory and hidden vector: the equations, one row, one step and one head at a time."""
    parts, memory, hidden = (tensor.numpy().copy() for tensor in (parts, memory, h0))
    (steps, batch, _), size, width = parts.shape, hidden.shape[1], memory.shape[2]
    outputs = np.zeros((steps, batch, size))
    for row in range(batch):
        for time in range(steps if lengths is None else int(lengths[row])):
            if starts is not None and starts[time, row]:
                memory[row], hidden[row] = np.eye(width), 0
            target, gate, query, embedded = np.split(parts[time, row], 4)
            rotated = np.zeros(size)
            for head in range(memory.shape[1]):
                own = slice(head * width, (head + 1) * width)
                e, tau, q = (np.pad(each[own], (0, width - len(each[own]))) for each in (embedded, target, query))
                if e.any() and tau.any():
                    e, tau = e / np.linalg.norm(e), tau / np.linalg.norm(tau)
                    second = tau if double_angle else e + tau
                    if np.linalg.norm(second) < 1e-14:  # opposite, as half of the pairs with one number are
                        second = np.eye(width)[np.abs(e).argmin()]
                    second = second / np.linalg.norm(second)
                    for normal in (second, e):
                        memory[row, head] = memory[row, head] @ (np.eye(width) - 2 * np.outer(normal, normal))
                rotated[own] = (memory[row, head] @ q)[: len(rotated[own])]
            keep = 1 / (1 + np.exp(-gate))
            hidden[row] = keep * hidden[row] + (1 - keep) * ACTIVATIONS[activation](embedded + rotated)
            outputs[time, row] = hidden[row]
    return outputs, memory, hidden


TINY = (4, 2, 3, 1, 3)

CONTRACT = Contract(
    run=rotation_scan,
    draw=drawn,
    kinds=each(double_angle=[False, True]),
    # T, B, N, H, d: one step, one row, whole chunks of 64 steps, one step more, full and partly filled heads, an empty
    # head, and one, two, three and more than four registers for a row of R
    sizes=[
        *((1, 1, 2, 1, 2), (7, 5, 5, 2, 3), (64, 2, 32, 2, 16), (65, 3, 34, 1, 34), (130, 2, 5, 4, 2)),
        *((66, 1, 130, 1, 130), (10, 2, 48, 1, 48)),
    ],
    others=[((66, 1, 20, 2, 10), kind) for kind in each(activation=list(ACTIVATIONS), double_angle=[False, True])],
    small=(67, 19, 5, 2, 3),
    tiny=TINY,
    states=["memory", "h0"],
    truth=in_numpy,
    exact=1e-10,
    single=1e-3,
)


@for_each("value", [torch.nan, torch.inf])
@for_each("part", [0, 3])  # the target, the embedded input
def test_what_is_no_number_spoils_the_memory_up_to_a_reset(part: int, value: float) -> None:
    case = CONTRACT.case((7, 2, 4, 2, 2), {"double_angle": True}, ragged=False, resets=False)
    case.options["starts"] = torch.zeros(7, 2, dtype=torch.bool)
    case.options["starts"][5, 0] = True
    case.tensors["parts"][2, 0, 4 * part] = value
    for form in (rotation_scan, CONTRACT.plain):
        outputs, memory, _ = case.values(form)
        assert outputs[2:5, 0].isnan().any(1).all()
        assert memory.isfinite().all()
        assert outputs[:, 1].isfinite().all()
