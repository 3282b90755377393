"""Ends a run that has reached a score or no longer improves."""

import logging
import math
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import EarlyStopping as LightningEarlyStopping
from pytorch_lightning.callbacks.early_stopping import EarlyStoppingReason
from torch import Tensor

from gyral.core.checks import check_integer, check_real
from gyral.core.measures import printed

log = logging.getLogger(__name__)


class EarlyStopping(LightningEarlyStopping):
    """Ends the run once the task's monitored metric reaches a threshold or stops improving.

    The run is then tested with its best checkpoint and marked DONE as usual. Metric and mode are the task's. The
    checkpoint records that the run has stopped: a run that is killed between its last step and its test is not trained
    further when it resumes. A metric that is NaN is never an improvement.

    Args:
        stopping_threshold: the run ends at the first validation whose metric is at least this value, or with the
            task's mode "min" at most this value. None: no threshold.
        patience: the run ends after this number of validations in a row without improvement. None: no limit.
    """

    def __init__(self, stopping_threshold: float | None = None, patience: int | None = None) -> None:
        super().__init__(
            monitor="",  # the task's, see `setup`
            patience=math.inf if patience is None else check_integer("patience", patience),
            check_finite=False,
            check_on_train_epoch_end=False,
        )
        self.threshold = None if stopping_threshold is None else check_real("stopping_threshold", stopping_threshold)

    @property
    def state_key(self) -> str:
        return type(self).__name__

    @property
    def stopped(self) -> bool:
        """Whether this callback has ended the run."""
        return self.stopping_reason is not EarlyStoppingReason.NOT_STOPPED

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # the configured patience; a checkpoint of an older version lacks some fields
        super().load_state_dict({**self.state_dict(), **state, "patience": self.patience})

    def setup(self, trainer: Trainer, task: Any, stage: str) -> None:
        super().setup(trainer, task, stage)
        if stage != "fit":
            return
        self.monitor, self.mode = task.monitor, task.mode
        worst = -math.inf if task.mode == "max" else math.inf
        self.best_score = torch.tensor(worst, dtype=torch.float64)
        if self.threshold is not None:  # Lightning stops beyond its threshold, but not at it
            nearest = min if task.mode == "max" else max  # a metric in single precision reaches the rounded threshold
            reached = nearest(self.threshold, torch.tensor(self.threshold).item())
            self.stopping_threshold = math.nextafter(reached, worst)

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        trainer.should_stop = trainer.should_stop or self.stopped

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        # in double precision: in the metric's single precision the threshold would be rounded
        return super()._evaluate_stopping_criteria(torch.tensor(current.item(), dtype=torch.float64))

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        super().on_validation_end(trainer, task)
        if trainer.state.fn != "fit" or not self.stopped:
            return
        if self.stopping_reason is EarlyStoppingReason.STOPPING_THRESHOLD:
            score = printed(task.monitor, trainer.callback_metrics[task.monitor].item(), task.measures)
            reason = f"{task.monitor} is {score}"
        else:
            best = printed(task.monitor, self.best_score.item(), task.measures)
            reason = f"{task.monitor} has not improved in {self.wait_count} validations (best: {best})"
        log.info("Stopped early after step %d: %s", trainer.global_step, reason)
