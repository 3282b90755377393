"""Learning rate schedules that torch.optim.lr_scheduler lacks."""

from bisect import bisect_right

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from gyral.core.checks import check_integer, check_real
from gyral.core.errors import OptionError


def piecewise(optimizer: Optimizer, milestones: list[int], rates: list[float]) -> LambdaLR:
    """Return a schedule with a rate of its own from each milestone on; before the first it is the optimizer's.

    Args:
        optimizer: what is scheduled; all its groups have the same rates.
        milestones: steps, increasing.
        rates: one a milestone.

    Raises:
        OptionError: milestones that do not increase, a rate that is not above 0, or more of one than of the other.
    """
    previous = 0
    for milestone in milestones:
        previous = check_integer("milestones", milestone, minimum=previous + 1)
    for rate in rates:
        check_real("rates", rate, above=0)
    if len(rates) != len(milestones):
        raise OptionError(f"rates={rates}: must be {len(milestones)}, one for each of milestones={milestones}")
    initial = optimizer.defaults["lr"]
    factors = [1.0, *(rate / initial for rate in rates)]
    return LambdaLR(optimizer, lambda step: factors[bisect_right(milestones, step)])
