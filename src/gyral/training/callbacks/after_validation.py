"""Base class of callbacks that inspect the model after each validation."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from torch import Tensor

from gyral.core.side_outputs import SideOutput
from gyral.models.sequence import SequenceModel
from gyral.training.loggers import MetricsFile


class AfterValidation(Callback, ABC):
    """Inspects the model on the first batch of each validation of a training run, before the metrics are logged.

    What it does is a side output: a failure is reported once, and training continues.

    Attributes:
        FILE: name of the file in the run directory that has a row for each validation, see `write`. A resumed run
            continues it as it does metrics.csv.
    """

    FILE: str

    def __init__(self) -> None:
        self._batch: Any = None
        self._file: MetricsFile
        self._output = SideOutput(type(self).__name__, f"{self.FILE} of the run is incomplete")

    @abstractmethod
    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        """Inspect the model on a batch."""

    def begin(self, trainer: Trainer) -> None:
        """Start or continue the file."""
        self._file = MetricsFile(Path(trainer.default_root_dir) / self.FILE, trainer.global_step)

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        with self._output.guard():
            self.begin(trainer)

    def on_validation_batch_start(
        self, trainer: Trainer, task: LightningModule, batch: Any, index: int, dataloader_idx: int = 0
    ) -> None:
        if index == 0:
            self._batch = batch

    def on_validation_epoch_end(self, trainer: Trainer, task: LightningModule) -> None:  # before the task's own hook
        if trainer.state.fn == "fit" and self._batch is not None:
            with self._output.guard():
                self.inspect(trainer, task, self._batch)

    def write(self, trainer: Trainer, row: dict[str, float]) -> None:
        """Append a row to the file, for the last optimizer step."""
        self._file.log_metrics(row, trainer.global_step - 1)


def row_lengths(task: Any, batch: Any) -> Tensor | None:
    """Return the lengths (B,) of the rows that the cells of a model of sequences read; None for other models."""
    return batch.lengths if isinstance(getattr(task, "model", None), SequenceModel) else None
