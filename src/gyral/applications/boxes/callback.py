"""Records the boxes of concepts in the plane."""

from typing import Any

import torch
from pytorch_lightning import Trainer

from gyral.applications.boxes.model import BoxModel
from gyral.core.errors import OptionError, UserError
from gyral.training.callbacks.after_validation import AfterValidation

SHOWN = 12  # concepts
CORNERS = ("left", "bottom", "right", "top")


class Boxes(AfterValidation):
    """Appends the positions of some boxes in the plane to boxes.csv after each validation.

    Each row is a validation: `step`, the index of the last optimizer step, from 0, then `<concept>/<side>` for the
    sides left, bottom, right and top of each box. A resumed run continues the file as it does metrics.csv.
    """

    FILE = "boxes.csv"

    def check_task(self, task: Any) -> None:
        """Check that this callback supports the task's model.

        Raises:
            UserError: the model has no boxes, or they are not in the plane.
        """
        if not isinstance(task.model, BoxModel):
            name = type(task.model).__name__
            raise UserError(f"callbacks.boxes: {name} has no boxes; use it with model=smoothed_box")
        if task.model.dimension != 2:
            raise OptionError("model.dimension", task.model.dimension, "must be 2 with callbacks=boxes")

    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        if trainer.is_global_zero:
            self.write(trainer, box_row(task))


@torch.no_grad()
def box_row(task: Any) -> dict[str, float]:
    """Return the sides of the boxes that `Boxes` records, by the names of their columns."""
    concepts = task.shown_concepts(SHOWN)
    corners = torch.cat(task.model.boxes(torch.tensor(concepts, device=task.device)), dim=1).tolist()
    return {
        f"{task.names[concept]}/{name}": value
        for concept, of_box in zip(concepts, corners, strict=True)
        for name, value in zip(CORNERS, of_box, strict=True)
    }
