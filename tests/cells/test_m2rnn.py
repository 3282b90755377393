"""The gradient bound of M²RNN."""

import torch

from gyral.cells.m2rnn import M2RNNCell


def test_the_gradient_of_the_memory_is_bounded() -> None:
    found = []
    for clip in (1.0, None):
        cell = M2RNNCell(3, 4, heads=2, clip=clip)
        state = cell.init_state(2)
        memory = state.memory.requires_grad_()
        _, new = cell(torch.randn(2, 3), state._replace(memory=memory))
        found.append(torch.autograd.grad(new.memory, memory, torch.full_like(memory, 1e3))[0].abs().max())
    assert found[0] < 10 < found[1]
