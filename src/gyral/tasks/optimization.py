"""The optimizer and the learning-rate schedule of a task."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from gyral.core.errors import OptionError

OptimizerFactory = Callable[[Iterable[nn.Parameter]], Optimizer]
SchedulerFactory = Callable[..., LRScheduler]


class Optimization:
    """An optimizer with its learning-rate schedule.

    Lightning steps a schedule after each optimizer step. `ReduceLROnPlateau` is the exception: it steps after each
    validation, in `step_plateau`, which the task calls. If Lightning stepped it, a run that resumes from a checkpoint
    of the same step would skip it.

    Args:
        optimizer: makes the optimizer from the parameters. None: `configure` must not be called.
        scheduler: makes the schedule from the optimizer. None: the learning rate is constant.
    """

    def __init__(self, optimizer: OptimizerFactory | None, scheduler: SchedulerFactory | None) -> None:
        self._make_optimizer = optimizer
        self._make_scheduler = scheduler
        self._plateau: ReduceLROnPlateau | None = None
        self._plateau_state: dict[str, Any] | None = None

    def configure(self, parameters: Iterable[nn.Parameter]) -> Any:
        """Return what `LightningModule.configure_optimizers` returns.

        Raises:
            OptionError: the optimizer's ε is zero in the dtype of the parameters.
        """
        assert self._make_optimizer is not None, "the task was built without an optimizer"
        optimizer = self._make_optimizer(parameters)
        _check_epsilon(optimizer)
        if self._make_scheduler is None:
            return optimizer
        scheduler = self._make_scheduler(optimizer)
        if isinstance(scheduler, ReduceLROnPlateau):
            self._plateau = scheduler
            if self._plateau_state is not None:
                self._plateau.load_state_dict(self._plateau_state)
            return optimizer
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def step_plateau(self, monitored: Tensor) -> None:
        """Step the schedule after a validation, if it is `ReduceLROnPlateau`.

        Args:
            monitored: value of the monitored metric.
        """
        if self._plateau is not None:
            self._plateau.step(monitored)

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add the state that Lightning does not save to a checkpoint."""
        if self._plateau is not None:
            checkpoint["plateau"] = self._plateau.state_dict()

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Load the state that `save` added."""
        self._plateau_state = checkpoint.get("plateau")


def _check_epsilon(optimizer: Optimizer) -> None:
    """Raise `OptionError` if ε is zero in the parameters' dtype: parameters without a gradient would become NaN."""
    for group in optimizer.param_groups:
        epsilon = group.get("eps")
        for dtype in {parameter.dtype for parameter in group["params"]}:
            if isinstance(epsilon, float) and torch.tensor(epsilon, dtype=dtype) == 0 < epsilon:
                smallest, name = torch.finfo(dtype).smallest_normal, str(dtype).removeprefix("torch.")
                reason = f"is zero in {name} (trainer.precision); must be ≥ {smallest:.0e}, such as 1e-4"
                raise OptionError("optimizer.eps", epsilon, reason)
