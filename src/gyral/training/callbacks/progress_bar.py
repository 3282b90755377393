"""The progress of training in the terminal and in the log."""

import logging
import math
import time
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ProgressBar as LightningProgressBar

from gyral.core.checks import check_real
from gyral.core.measures import main_measure, printed
from gyral.core.pace import count_validations
from gyral.core.progress import PROGRESS, format_seconds, line

log = logging.getLogger(__name__)


class ProgressBar(LightningProgressBar):
    """Shows steps, loss, score and the time left on the progress line of the run, and logs a message per validation.

    In a terminal the messages go to train.log only. The time left is that until the end of the run: its steps, its
    validations and its final test. Before the first validation, a batch of it counts as a third of a step.

    Args:
        seconds: minimum time between two updates of the line, ≥ 0.
    """

    def __init__(self, seconds: float = 0.5) -> None:
        super().__init__()
        self.seconds = check_real("seconds", seconds, minimum=0)
        self._last_update = -math.inf
        self._started, self._first_step = 0.0, 0
        self._validating, self._validated = 0.0, 0  # seconds of validations, and batches
        self._test_batches = 0

    def disable(self) -> None:
        """Do nothing; Lightning calls this in processes other than the first, which have no line."""

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        self._started, self._first_step = time.monotonic(), trainer.global_step
        self._validating, self._validated = 0.0, 0
        self._test_batches = len(task.data.loader("test"))
        line.begin("training", trainer.max_steps)
        line.update(trainer.global_step, trainer.max_steps)

    def on_train_batch_end(self, trainer: Trainer, task: Any, outputs: Any, batch: Any, index: int) -> None:
        now, step = time.monotonic(), trainer.global_step
        if now - self._last_update >= self.seconds or step == trainer.max_steps:
            self._last_update = now
            values = self._values(trainer, task)
            values.pop("val loss", None)  # or the line would not fit into 80 columns
            line.update(step, trainer.max_steps, _join(values), self._left(trainer, now))

    def on_validation_start(self, trainer: Trainer, task: LightningModule) -> None:
        self._since = time.monotonic()

    def on_validation_end(self, trainer: Trainer, task: Any) -> None:
        if trainer.state.fn != "fit":
            return
        now = time.monotonic()
        self._validating += now - self._since
        self._validated += sum(trainer.num_val_batches)
        step, total = trainer.global_step, trainer.max_steps
        message = f"step {step:,} of {total:,}: {_join(self._values(trainer, task))}"
        left = self._left(trainer, now)
        if left is not None and step < total:
            message += f", {format_seconds(left)} left"
        log.info(message, extra=PROGRESS)

    def on_test_start(self, trainer: Trainer, task: LightningModule) -> None:
        line.begin("testing")

    def _left(self, trainer: Trainer, now: float) -> float | None:
        """Return the seconds until the end of the run, None before the first step."""
        step, total = trainer.global_step, trainer.max_steps
        if step <= self._first_step:
            return None
        seconds = (now - self._started - self._validating) / (step - self._first_step)
        batch = self._validating / self._validated if self._validated else seconds / 3
        interval = max(1, int(trainer.val_check_batch or total) // trainer.accumulate_grad_batches)
        validations = count_validations(step, total, interval)
        batches = validations * sum(trainer.num_val_batches) + self._test_batches
        return (total - step) * seconds + batches * batch

    def _values(self, trainer: Trainer, task: Any) -> dict[str, str]:
        """Return the recent training loss, the last validation loss and the last score, by their names."""
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        loss = task.recent_loss()
        values = {} if loss is None else {"train loss": f"{loss:.4g}"}
        if "val/loss" in metrics:
            values["val loss"] = f"{metrics['val/loss']:.4g}"
            measure = main_measure(task.measures, metrics, "val")
            name = f"val/{measure.name}"
            if measure.name != "loss" and not math.isnan(metrics[name]):  # NaN: there was nothing to measure
                values[f"val {measure.label}"] = printed(name, metrics[name], [measure])
        return values


def _join(values: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
