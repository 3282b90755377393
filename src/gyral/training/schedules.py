"""Learning-rate schedules that torch.optim.lr_scheduler lacks.

Lightning steps a schedule after every optimizer step. A schedule on a metric (scheduler=plateau, recent_best) steps
after every validation, in `gyral.tasks.base.Task.on_validation_epoch_end`. `gyral.tasks.optimization` builds
optimizer and schedule and says which of the two applies. The schedules are chosen in conf/scheduler.
"""

import math
from bisect import bisect_right
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.errors import OptionError


def piecewise(optimizer: Optimizer, milestones: list[int], rates: list[float]) -> LambdaLR:
    """Return a piecewise constant schedule: the optimizer's learning rate, then a given one from each milestone.

    Args:
        optimizer: the optimizer; all its parameter groups get the same learning rate.
        milestones: increasing numbers of steps.
        rates: learning rates, one per milestone.

    Raises:
        OptionError: milestones that do not increase, a rate that is not positive, or lists of different lengths.
    """
    previous = 0
    for milestone in milestones:
        previous = check_integer("milestones", milestone, minimum=previous + 1)
    for rate in rates:
        check_real("rates", rate, above=0)
    if len(rates) != len(milestones):
        raise OptionError("rates", rates, f"must be {len(milestones)}, one for each of milestones={milestones}")
    initial = optimizer.defaults["lr"]
    factors = [1.0, *(rate / initial for rate in rates)]
    return LambdaLR(optimizer, lambda step: factors[bisect_right(milestones, step)])


def warmup_stable_decay(optimizer: Optimizer, steps: int, warmup: int = 0, decay: float = 0.25) -> LambdaLR:
    """Return a schedule that rises linearly to the optimizer's learning rate, stays there, and falls linearly to zero.

    Args:
        optimizer: the optimizer.
        steps: the number of all steps, S.
        warmup: the number of steps W of the rise; step t = 0, 1, … of them has (t + 1) / W of the learning rate.
        decay: the share of the steps, in [0, 1], of the fall D = decay · S; there step t has (S − t) / D of the rate.

    Raises:
        OptionError: an argument is out of bounds.
    """
    check_integer("steps", steps)
    check_integer("warmup", warmup, minimum=0)
    fall = max(check_real("decay", decay, minimum=0, maximum=1) * steps, 1.0)
    return LambdaLR(optimizer, lambda step: max(min(1.0, (step + 1) / max(warmup, 1), (steps - step) / fall), 0.0))


def cosine(optimizer: Optimizer, steps: int, warmup: int = 0, eta_min: float = 0.0) -> LambdaLR:
    """Return a schedule that rises linearly to the optimizer's learning rate r, and falls along half a cosine.

        r (t + 1) / W,   t < W;      e + (r − e) (1 + cos(π (t − W) / (S − W))) / 2,   W ≤ t ≤ S

    Args:
        optimizer: the optimizer; a group of parameters with another learning rate has another end in proportion.
        steps: S, the number of all steps.
        warmup: W, the number of steps of the rise.
        eta_min: e, the learning rate at the end, at most r.

    Raises:
        OptionError: an argument is out of bounds.
    """
    check_integer("steps", steps)
    check_integer("warmup", warmup, minimum=0)
    rate = optimizer.defaults["lr"]
    end = check_real("eta_min", eta_min, minimum=0, maximum=rate) / rate

    def factor(step: int) -> float:
        fallen = min((step - warmup) / max(steps - warmup, 1), 1.0)
        return (step + 1) / warmup if step < warmup else end + (1 - end) * (1 + math.cos(math.pi * fallen)) / 2

    return LambdaLR(optimizer, factor)


class RecentBest(ReduceLROnPlateau):
    """Multiply the learning rate by a factor after a validation that is worse than the best of the last few.

    Unlike `ReduceLROnPlateau`, it forgets older validations, and reduces nothing if a metric stays the same.

    Args:
        optimizer: the optimizer.
        mode: "min" or "max", which values of the monitored metric are better.
        factor: factor, in (0, 1).
        window: number of validations before the current one.
        min_lr: lower bound of the learning rate.

    Raises:
        OptionError: an argument is out of bounds.
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.8, window: int = 4, min_lr: float = 0.0
    ) -> None:
        check_real("factor", factor, above=0, below=1)
        check_real("min_lr", min_lr, minimum=0)
        super().__init__(optimizer, check_choice("mode", mode, ("min", "max")), factor, min_lr=min_lr)  # type: ignore[arg-type]
        self.window = check_integer("window", window)
        self.recent: list[float] = []

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Update the schedule with the monitored metric of a validation."""
        current, sign = float(metrics), 1 if self.mode == "max" else -1
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if any(sign * current < sign * earlier for earlier in self.recent):
            for group, smallest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                group["lr"] = max(group["lr"] * self.factor, smallest)
        self.recent = [*self.recent, current][-self.window :]
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]
