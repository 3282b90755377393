"""Learning rate schedules of our own: the rates, resuming, and what is refused."""

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.training.schedules import RecentBest, cosine, piecewise, warmup_stable_decay


def optimizer(rate: float = 0.02) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)


def test_each_milestone_brings_its_rate() -> None:
    descent = optimizer()
    schedule = piecewise(descent, [2, 5], [0.001, 0.03])
    expected = [0.02, 0.02, 0.001, 0.001, 0.001, 0.03, 0.03]
    assert rates_of(descent, schedule, 7) == pytest.approx(expected)


def rates_of(descent: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler, steps: int) -> list[float]:
    rates = []
    for _ in range(steps):
        rates.append(descent.param_groups[0]["lr"])
        descent.step()
        schedule.step()
    return rates


def test_a_cosine_without_warm_up_equals_that_of_torch() -> None:
    own, other = optimizer(), optimizer()
    expected = rates_of(other, torch.optim.lr_scheduler.CosineAnnealingLR(other, 8, eta_min=0.001), 9)
    assert rates_of(own, cosine(own, 8, eta_min=0.001), 9) == pytest.approx(expected)


def test_a_cosine_rises_over_the_warm_up_and_ends_at_its_minimum() -> None:
    descent = optimizer()
    rates = rates_of(descent, cosine(descent, 8, warmup=4, eta_min=0.01), 10)
    assert rates == pytest.approx(
        [0.005, 0.01, 0.015, 0.02, 0.02, 0.015 + 0.005 / 2**0.5, 0.015, 0.015 - 0.005 / 2**0.5, 0.01, 0.01]
    )
    short = optimizer()
    assert rates_of(short, cosine(short, 2, warmup=4), 2) == pytest.approx([0.005, 0.01])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "steps=0"),
        ({"warmup": -1}, "warmup=-1"),
        ({"eta_min": 0.1}, "eta_min=0.1: must be a finite number ≥ 0 and ≤ 0.02"),
    ],
)
def test_bad_values_of_a_cosine_are_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(OptionError, match=f"^{said}"):
        cosine(optimizer(), **{"steps": 8, **options})  # type: ignore[arg-type]


def test_a_saved_schedule_resumes() -> None:
    first, second = optimizer(), optimizer()
    schedule = piecewise(first, [2], [0.001])
    for _ in range(2):
        first.step()
        schedule.step()
    resumed = piecewise(second, [2], [0.001])
    resumed.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    assert second.param_groups[0]["lr"] == pytest.approx(0.001)
    second.step()
    resumed.step()
    assert second.param_groups[0]["lr"] == pytest.approx(0.001)


@pytest.mark.parametrize(
    ("milestones", "rates", "said"),
    [
        ([3, 3], [0.1, 0.1], "milestones=3: must be an integer ≥ 4"),
        ([0], [0.1], "milestones=0: "),
        ([1], [0.0], "rates=0.0: "),
        ([1, 2], [0.1], "rates=\\[0.1\\]: must be 2, one for each of milestones="),
    ],
)
def test_bad_values_are_refused(milestones: list[int], rates: list[float], said: str) -> None:
    with pytest.raises(OptionError, match=f"^{said}"):
        piecewise(optimizer(), milestones, rates)


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_recent_best_reduces_after_a_validation_below_the_best_of_the_last_four(mode: str, sign: int) -> None:
    descent = optimizer(1.0)
    schedule = RecentBest(descent, mode, factor=0.5, min_lr=0.05)
    rates = []
    for value in (0.9, 0.9, 0.5, 0.6, 0.7, 0.8, 0.8, 0.7):
        if len(rates) == 4:  # a resumed run continues
            state, schedule = schedule.state_dict(), RecentBest(descent, mode, factor=0.5, min_lr=0.05)
            schedule.load_state_dict(state)
        schedule.step(torch.tensor(sign * value))
        rates.append(descent.param_groups[0]["lr"])
    assert rates == pytest.approx([1, 1, 0.5, 0.25, 0.125, 0.0625, 0.0625, 0.05])
    assert schedule.recent == pytest.approx([sign * value for value in (0.7, 0.8, 0.8, 0.7)])


def test_warmup_stable_decay_rises_stays_and_falls() -> None:
    descent = optimizer(0.1)
    schedule = warmup_stable_decay(descent, steps=12, warmup=4, decay=0.25)
    rates = []
    for _ in range(12):
        rates.append(descent.param_groups[0]["lr"])
        descent.step()
        schedule.step()
    assert rates == pytest.approx([0.025, 0.05, 0.075, *[0.1] * 7, 0.1 * 2 / 3, 0.1 / 3])
    assert descent.param_groups[0]["lr"] == 0
    assert warmup_stable_decay(optimizer(0.1), steps=5, decay=0).get_last_lr() == [0.1]
    with pytest.raises(OptionError, match="decay=2"):
        warmup_stable_decay(optimizer(), steps=5, decay=2)
