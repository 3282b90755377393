"""Base class of callbacks that inspect the model after each validation."""

from abc import ABC, abstractmethod
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer


class AfterValidation(Callback, ABC):
    """Inspects the model on the first batch of each validation of a training run, before the metrics are logged."""

    def __init__(self) -> None:
        self._batch: Any = None

    @abstractmethod
    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        """Inspect the model on a batch."""

    def on_validation_batch_start(
        self, trainer: Trainer, task: LightningModule, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        if index == 0:
            self._batch = batch

    def on_validation_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:
        if trainer.state.fn == "fit" and self._batch is not None:
            self.inspect(trainer, task, self._batch)
