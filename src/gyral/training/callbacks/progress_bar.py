"""The progress bar of training."""

import math
import time
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import TQDMProgressBar
from pytorch_lightning.callbacks.progress.tqdm_progress import Tqdm

from gyral.core.checks import check_integer, check_real


class ProgressBar(TQDMProgressBar):
    """Lightning's progress bar, for training only; evaluations take about a second and have none.

    The bar is redrawn at intervals of time, because a redraw takes a millisecond and a step between a few milliseconds
    and a few seconds.

    Args:
        seconds: minimum time between two redraws, ≥ 0.
        refresh_rate: minimum number of steps between two redraws, ≥ 1.
    """

    def __init__(self, seconds: float = 0.5, refresh_rate: int = 1) -> None:
        super().__init__(refresh_rate=check_integer("refresh_rate", refresh_rate))
        self.seconds = check_real("seconds", seconds, minimum=0)
        self._last_redraw = -math.inf

    def on_train_batch_end(self, trainer: Trainer, task: LightningModule, outputs: Any, batch: Any, index: int) -> None:
        now = time.monotonic()
        if now - self._last_redraw >= self.seconds or index + 1 == self.total_train_batches:
            self._last_redraw = now
            super().on_train_batch_end(trainer, task, outputs, batch, index)

    def init_validation_tqdm(self) -> Tqdm:
        return Tqdm(disable=True)

    def init_test_tqdm(self) -> Tqdm:
        return Tqdm(disable=True)

    def on_train_start(self, *_: Any) -> None:
        super().on_train_start()
        self._begin()

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        super().on_train_epoch_start(trainer)
        self._begin()

    def _begin(self) -> None:
        """Set the total and the description, also in a resumed run, in which Lightning starts no epoch."""
        self.train_progress_bar.total = self.total_train_batches
        self.train_progress_bar.set_description("training")

    def get_metrics(self, trainer: Trainer, task: Any) -> dict[str, Any]:
        metrics = super().get_metrics(trainer, task)
        metrics.pop("v_num", None)  # the version number of a logger
        return metrics if task.train_loss is None else {"train/loss": task.train_loss, **metrics}
