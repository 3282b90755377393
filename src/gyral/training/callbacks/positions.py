"""Records the loss at each position of a window."""

from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer

from gyral.core.errors import UserError
from gyral.training.loggers import MetricsFile


class Positions(Callback):
    """After each validation, appends to positions.csv the mean loss, in nats, at each position of a window.

    Each row is a validation: `step`, the index of the last optimizer step, from 0, then the positions from 0. With a
    state that is carried across windows the losses are about equal; with a new state the first ones are larger. A
    resumed run continues the file as it does metrics.csv.
    """

    FILE = "positions.csv"

    def __init__(self) -> None:
        self._file: MetricsFile

    def check_task(self, task: Any) -> None:
        """Check that this callback supports a task.

        Raises:
            UserError: the task has no windows.
        """
        if not hasattr(task.metrics, "position_loss"):
            raise UserError(f"callbacks.positions: {type(task).__name__} has no windows; use it with a TextTask")

    def on_train_start(self, trainer: Trainer, task: Any) -> None:
        self._file = MetricsFile(Path(trainer.default_root_dir) / self.FILE, trainer.global_step)

    def on_validation_epoch_end(self, trainer: Trainer, task: Any) -> None:  # called before the task's own hook
        if trainer.state.fn == "fit":
            # torchmetrics returns the loss of a window of one step without a dimension
            losses = task.metrics.position_loss.compute().flatten().tolist()
            self._file.log_metrics(
                {str(position): loss for position, loss in enumerate(losses)}, trainer.global_step - 1
            )
