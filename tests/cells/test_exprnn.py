"""The change of base of dtriv."""

from typing import Any

import pytest
import torch

from gyral.cells.base import HiddenState
from gyral.cells.exprnn import DTRIVCell


def test_a_change_of_base_keeps_the_matrix_and_clears_the_momentum() -> None:
    cell = DTRIVCell(3, 6, base_steps=2).double()
    optimizer = torch.optim.Adam(cell.parameters())
    for step in (1, 2):
        state = HiddenState(torch.randn(4, 6, dtype=torch.float64))
        outputs, _ = cell(torch.randn(4, 3, dtype=torch.float64), state)
        outputs.sum().backward()
        optimizer.step()
        before = cell.operator().detach()
        cell.after_optimizer_step(step, optimizer)
        torch.testing.assert_close(cell.operator().detach(), before)
        assert bool(cell.generator.any()) == (step == 1)
    assert not optimizer.state[cell.generator]["exp_avg"].any()
    assert optimizer.state[cell.bias]["exp_avg"].any()
    torch.testing.assert_close(cell.base @ cell.base.T, torch.eye(6, dtype=torch.float64))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.optim.Adam, {}),
        (torch.optim.NAdam, {}),
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.SGD, {"momentum": 0.9}),
    ],
)
def test_no_step_after_a_change_of_base_is_longer_than_one_before_it(make: Any, options: dict[str, Any]) -> None:
    cell = DTRIVCell(3, 6, base_steps=100)
    optimizer = make(cell.parameters(), lr=1e-3, **options)
    gradient = torch.randn_like(cell.generator).triu(1)
    lengths = []
    for step in range(1, 401):
        cell.generator.grad = gradient * (1 + 0.1 * torch.randn(()))
        before = cell.generator.detach().clone()
        optimizer.step()
        lengths.append(float((cell.generator.detach() - before).norm()))
        cell.after_optimizer_step(step, optimizer)
    assert max(lengths[300:]) < 1.2 * max(lengths[200:300])
    assert max(lengths[100:]) < 1.2 * max(lengths[:100])
