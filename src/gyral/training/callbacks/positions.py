"""Records the loss at each position of a window."""

from typing import Any

from pytorch_lightning import Trainer

from gyral.core.errors import UserError
from gyral.training.callbacks.after_validation import AfterValidation


class Positions(AfterValidation):
    """After each validation, appends to positions.csv the mean loss, in nats, at each position of a window.

    Each row is a validation: `step`, the index of the last optimizer step, from 0, then the positions from 0. With a
    state that is carried across windows the losses are about equal; with a new state the first ones are larger. A
    resumed run continues the file as it does metrics.csv.
    """

    FILE = "positions.csv"

    def check_task(self, task: Any) -> None:
        """Check that this callback supports a task.

        Raises:
            UserError: the task has no windows.
        """
        if not hasattr(task.metrics, "position_loss"):
            raise UserError(f"callbacks.positions: {type(task).__name__} has no windows; use it with a TextTask")

    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        # torchmetrics returns the loss of a window of one step without a dimension
        losses = task.metrics.position_loss.compute().flatten().tolist()
        self.write(trainer, {str(position): loss for position, loss in enumerate(losses)})
