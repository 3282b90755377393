"""Rows of a batch sorted by length."""

import torch

from gyral.ops import ragged


def test_descending_lengths_need_no_order() -> None:
    assert ragged.longest_first(None) is None
    for lengths in ([], [3], [4, 4], [5, 3, 3, 1]):
        assert ragged.longest_first(torch.tensor(lengths, dtype=torch.int64)) is None


def test_an_order_sorts_and_restores() -> None:
    lengths = torch.tensor([2, 5, 1, 5, 3])
    order = ragged.longest_first(lengths)
    assert order is not None
    assert order.sort(lengths, 0).tolist() == [5, 5, 3, 2, 1]
    batch = torch.randn(4, 5, 3)
    ordered = order.sort(batch, 1)
    assert torch.equal(ordered, batch[:, order.rows])
    assert torch.equal(order.restore(ordered, 1), batch)
    assert order.sort(None, 0) is None
    assert order.restore(0.5, 0) == 0.5


def test_derivatives_of_an_order() -> None:
    order = ragged.longest_first(torch.tensor([1, 3, 2]))
    assert order is not None
    batch = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(2, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda tensor: (order.sort(tensor, 1) * weights).sin(), [batch])
    assert torch.autograd.gradgradcheck(lambda tensor: (order.restore(tensor, 1) * weights).sin(), [batch])
