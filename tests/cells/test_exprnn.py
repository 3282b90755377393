"""The change of base of dtriv."""

import torch

from gyral.cells.base import HiddenState
from gyral.cells.exprnn import DTRIVCell


def test_a_change_of_base_keeps_the_matrix_and_clears_the_moments() -> None:
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
    assert not optimizer.state[cell.generator]["exp_avg_sq"].any()
    assert optimizer.state[cell.bias]["exp_avg_sq"].any()
    torch.testing.assert_close(cell.base @ cell.base.T, torch.eye(6, dtype=torch.float64))
