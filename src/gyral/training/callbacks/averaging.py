"""Averages the weights over the steps of training."""

import logging
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import WeightAveraging

from gyral.core.checks import check_integer
from gyral.core.errors import UserError

log = logging.getLogger(__name__)


class Averaging(WeightAveraging):
    """Evaluates and saves the mean of the weights of all steps since a start, with torch.optim.swa_utils.

    The start is a given step (ASGD), or the first validation whose monitored metric is worse than the best value of
    the validations more than `patience` validations ago (NT-ASGD, Merity et al., ICLR 2018). Training continues with
    the current weights, which the checkpoint holds too. The papers use optimizer=sgd with a constant learning rate.

    Args:
        start: number of optimizer steps before the first averaged step. None: the rule of NT-ASGD.
        patience: number of validations.
    """

    def __init__(self, start: int | None = None, patience: int = 5) -> None:
        super().__init__()
        self.start = None if start is None else check_integer("start", start, minimum=0)
        self.patience = check_integer("patience", patience)
        self._scores: list[float] = []
        self._triggered = False

    def check_task(self, task: LightningModule) -> None:
        """Check that the weights of different steps have a mean.

        Raises:
            UserError: a cell changes after each step what its weights are relative to, as the base of dtriv.
        """
        for module in task.modules():
            if hasattr(module, "after_optimizer_step"):
                reason = "changes its base in training, so that weights of different steps have no mean"
                raise UserError(f"callbacks.averaging: {type(module).__name__} {reason}")

    @property
    def averages(self) -> int:
        """Number of averaged steps, 0 before the start."""
        return 0 if self._average_model is None else int(self._average_model.n_averaged)

    def should_update(self, step_idx: int | None = None, epoch_idx: int | None = None) -> bool:
        return step_idx is not None and (self._triggered if self.start is None else step_idx >= self.start)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "scores": self._scores, "triggered": self._triggered}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._scores, self._triggered = state["scores"], state["triggered"]

    def on_validation_epoch_start(self, trainer: Trainer, task: LightningModule) -> None:
        if self.averages:
            super().on_validation_epoch_start(trainer, task)

    def on_validation_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        """Leave the mean in the model until `on_validation_end`: callbacks that come later here inspect it, too."""

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if self.averages:
            super().on_validation_epoch_end(trainer, task)
        if trainer.state.fn != "fit" or self.start is not None or self._triggered:
            return
        score = float(trainer.callback_metrics[task.monitor]) * (-1 if task.mode == "max" else 1)
        earlier = self._scores[: -self.patience]
        self._scores.append(score)
        if earlier and score > min(earlier):
            self._triggered = True
            log.info("Averaging the weights from step %d", trainer.global_step)

    def on_train_end(self, trainer: Trainer, task: LightningModule) -> None:
        if self.averages:
            super().on_train_end(trainer, task)

    def on_save_checkpoint(self, trainer: Trainer, task: LightningModule, checkpoint: dict[str, Any]) -> None:
        if not self.averages and self._average_model is not None:
            self._average_model.module.load_state_dict(task.state_dict())
        super().on_save_checkpoint(trainer, task, checkpoint)
