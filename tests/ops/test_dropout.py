"""Random masks: the right statistics, reproducible by seed. Zoneout: the right mixture, the right gradient."""

import pytest
import torch
from torch.autograd import gradcheck

from gyral.ops.dropout import bernoulli_mask, dropout_mask, zoneout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_mask_is_one_with_the_probability(probability: float, dtype: torch.dtype) -> None:
    like = torch.full((500, 200), torch.nan, dtype=dtype, requires_grad=True)
    mask = bernoulli_mask(like, probability)
    assert mask.shape == like.shape
    assert mask.dtype == dtype
    assert not mask.requires_grad
    assert ((mask == 0) | (mask == 1)).all()
    deviation = (probability * (1 - probability) / mask.numel()) ** 0.5
    assert abs(mask.mean().item() - probability) < 4 * deviation
    # one draw a unit and a row, not one for all rows or all units
    assert mask.mean(0).unique().numel() > 1
    assert mask.mean(1).unique().numel() > 1


def test_mask_extremes_and_seed() -> None:
    like = torch.empty(20, 20)
    assert bernoulli_mask(like, 0.0).count_nonzero() == 0
    torch.manual_seed(1)
    first = bernoulli_mask(like, 0.5)
    assert not torch.equal(bernoulli_mask(like, 0.5), first)
    torch.manual_seed(1)
    assert torch.equal(bernoulli_mask(like, 0.5), first)


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_dropout_drops_with_the_probability_and_keeps_the_mean(probability: float, dtype: torch.dtype) -> None:
    like = torch.full((500, 200), torch.nan, dtype=dtype, requires_grad=True)
    mask = dropout_mask(like, probability)
    assert (mask.shape, mask.dtype, mask.requires_grad) == (like.shape, dtype, False)
    kept = mask != 0
    assert torch.equal(mask[kept], torch.full_like(mask[kept], 1) / (1 - probability))
    deviation = (probability * (1 - probability) / mask.numel()) ** 0.5
    assert abs((~kept).double().mean().item() - probability) < 4 * deviation
    assert abs(mask.double().mean().item() - 1) < 4 * deviation / (1 - probability)
    assert mask.mean(0).unique().numel() > 1
    assert mask.mean(1).unique().numel() > 1


def test_dropout_without_probability_changes_nothing_and_depends_on_the_seed() -> None:
    like = torch.empty(20, 20)
    assert torch.equal(dropout_mask(like, 0.0), torch.ones(20, 20))
    torch.manual_seed(1)
    first = dropout_mask(like, 0.5)
    assert not torch.equal(dropout_mask(like, 0.5), first)
    torch.manual_seed(1)
    assert torch.equal(dropout_mask(like, 0.5), first)


# ---------------------------------------------------------------- zoneout


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
