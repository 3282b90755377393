"""`gyral.ops.stabilized_gates` against its equations; test_contract.py has what every operator keeps."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.sequences import last_step
from gyral.ops.stabilized_gates import NEVER, stabilized_gates
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, heads: int) -> tuple[Named, Named]:
    gates, first = torch.randn(steps, batch, 2 * heads).double() * 3, torch.randn(batch, heads).double()
    first[-1:] = NEVER
    return {"gates": gates, "first": first}, {"scale": 0.3}


def run(lengths: Tensor | None, **given: Any) -> tuple[Tensor, ...]:
    """Return the results and the last stabilizer."""
    found = stabilized_gates(lengths=lengths, **given)
    return *found, last_step(found[-1], lengths)


def step_by_step(
    gates: Tensor, first: Tensor, scale: float, lengths: Tensor | None, starts: Tensor | None
) -> tuple[Tensor, ...]:
    found, last = [], first
    for time, logits in enumerate(gates):
        write, forget = logits.chunk(2, dim=1)
        before = last if starts is None else last.masked_fill(starts[time].unsqueeze(1), NEVER)
        now = torch.maximum(F.logsigmoid(forget) + before, write)
        decay = torch.where(before == NEVER, 0.0, F.logsigmoid(forget) + before - now)
        ended = torch.tensor(False) if lengths is None else (time >= lengths).unsqueeze(1)
        results = decay, scale * torch.exp(write - now), torch.exp(-now), now
        found.append([each.masked_fill(ended, 0.0) for each in results])
        last = torch.where(ended, last, now)
    return *(torch.stack(each) for each in zip(*found, strict=True)), last


CONTRACT = Contract(
    run=run,
    draw=drawn,
    sizes=[(1, 1, 1), (7, 5, 3), (33, 2, 4)],
    small=(9, 19, 2),
    tiny=(4, 2, 2),
    states=["first"],
    truth=step_by_step,
)


@pytest.mark.parametrize("is_readable", [False, True])
def test_the_smallest_divisor_does_not_overflow(is_readable: bool) -> None:
    gates = torch.tensor([[[-200.0, -90.0, -79.0, -60.0, 1.0, 1.0, 1.0, 1.0]]], requires_grad=True)
    function = stabilized_gates.naive if is_readable else stabilized_gates
    _, _, least, _ = function(gates, torch.full((1, 4), NEVER))
    torch.testing.assert_close(least.log().flatten(), torch.tensor([80.0, 80.0, 79.0, 60.0]))
    (gradient,) = torch.autograd.grad((least / least.detach()).sum(), gates)
    torch.testing.assert_close(gradient.flatten(), torch.tensor([0.0, 0.0, -1.0, -1.0] + [0.0] * 4))
