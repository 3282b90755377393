"""Learning-rate schedules that torch.optim.lr_scheduler lacks.

Lightning steps a schedule after every optimizer step. A schedule on a plateau (scheduler=plateau) steps after every
validation, in `gyral.tasks.base.SequenceTask.on_validation_epoch_end`. `gyral.tasks.optimization` builds optimizer and
schedule and says which of the two applies. The schedules are chosen in conf/scheduler.
"""

from bisect import bisect_right

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from gyral.core.checks import check_integer, check_real
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
