"""`gyral.ops.token_shift` step by step; test_contract.py has what every operator keeps."""

import torch
from torch import Tensor

from gyral.ops.token_shift import MIXES, token_shift
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, channels: int) -> tuple[Named, Named]:
    shapes = {"values": (steps, batch, channels), "mix": (MIXES, channels), "before": (batch, channels)}
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}, {}


def step_by_step(
    values: Tensor, mix: Tensor, before: Tensor, lengths: Tensor | None, starts: Tensor | None
) -> list[Tensor]:
    found = []
    for time, value in enumerate(values):
        previous = before if time == 0 else values[time - 1]
        if starts is not None:
            previous = previous.masked_fill(starts[time].unsqueeze(1), 0.0)
        mixes = [(1 - share) * value + share * previous for share in mix]
        ended = torch.tensor(False) if lengths is None else (time >= lengths).unsqueeze(1)
        found.append(torch.stack(mixes).masked_fill(ended, 0.0))
    return [*torch.stack(found, dim=1)]


CONTRACT = Contract(
    run=token_shift,
    draw=drawn,
    sizes=[(1, 1, 1), (7, 5, 8), (3, 2, 37)],
    small=(9, 19, 5),
    tiny=(3, 2, 2),
    states=["before"],
    truth=step_by_step,
)
