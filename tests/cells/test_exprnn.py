"""The change of base of dtriv, and the gradient bound of M²RNN."""

import torch

from gyral.cells.base import HiddenState
from gyral.cells.exprnn import DTRIVCell
from gyral.cells.m2rnn import M2RNNCell


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


def test_the_gradient_of_the_memory_is_bounded() -> None:
    found = []
    for clip in (1.0, None):
        cell = M2RNNCell(3, 4, heads=2, clip=clip)
        state = cell.init_state(2)
        memory = state.memory.requires_grad_()
        _, new = cell(torch.randn(2, 3), state._replace(memory=memory))
        found.append(torch.autograd.grad(new.memory, memory, torch.full_like(memory, 1e3))[0].abs().max())
    assert found[0] < 10 < found[1]
