"""Random masks: the right statistics, reproducible by seed."""

import pytest
import torch

from gyral.ops.dropout import bernoulli_mask, dropout_mask


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
