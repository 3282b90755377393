"""Zoneout: the right mixture, the right gradient."""

import torch
from torch.autograd import gradcheck

from gyral.ops.dropout import bernoulli_mask
from gyral.ops.zoneout import zoneout


def test_a_kept_unit_is_old_and_the_others_are_new() -> None:
    new, old = torch.randn(2, 6, 5, dtype=torch.float64)
    mask = bernoulli_mask(new, 0.5)
    mixed = zoneout(new, old, mask)
    torch.testing.assert_close(mixed, torch.where(mask.bool(), old, new), rtol=0, atol=1e-15)
    assert torch.equal(mixed[mask == 0], new[mask == 0])
    assert torch.equal(zoneout(new, old, 0.0), new)


def test_at_test_the_expectation_of_training_is_used() -> None:
    new, old = torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(zoneout(new, old, 0.3), 0.3 * old + 0.7 * new, rtol=0, atol=1e-15)
    draws = 20000
    masks = bernoulli_mask(new.expand(draws, 3, 4), 0.3)
    mean = zoneout(new, old, masks).mean(0)
    deviation = (old - new).abs() * (0.3 * 0.7 / draws) ** 0.5
    assert ((mean - zoneout(new, old, 0.3)).abs() <= 4 * deviation).all()


def test_gradients() -> None:
    new, old = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mask = bernoulli_mask(new, 0.5)
    assert gradcheck(lambda n, o: zoneout(n, o, mask), (new, old))
    assert gradcheck(lambda n, o: zoneout(n, o, 0.25), (new, old))
    grad_new, grad_old = torch.autograd.grad(zoneout(new, old, mask).sum(), (new, old))
    assert torch.equal(grad_old, mask)
    assert torch.equal(grad_new, 1 - mask)
