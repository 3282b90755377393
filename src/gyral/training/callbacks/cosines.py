"""Records the angles of RUM's rotations."""

from contextlib import ExitStack
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor

from gyral.cells.base import RecurrentCell
from gyral.core.errors import OptionError, UserError
from gyral.training.callbacks.after_validation import AfterValidation, row_lengths


class Cosines(AfterValidation):
    """After each validation, appends to cosines.csv the histogram of cos θ_t on the first batch of the validation.

    The batch is run once more for it. Each row is a validation: `step`, the index of the last optimizer step, from 0,
    then `BINS` bins of equal width on [−1, 1], named by their centres, each with its share of the time steps of all
    sequences and of all cells that have `record_cosines`. A resumed run continues the file as it does metrics.csv.

    Raises (at the first validation):
        OptionError: the backend does not record cosines.
    """

    FILE = "cosines.csv"
    BINS = 50

    def __init__(self) -> None:
        super().__init__()
        self._cells: list[Any] = []

    def check_task(self, task: LightningModule) -> None:
        """Check that this callback supports the task's model.

        Raises:
            UserError: no cell of the model records cosines, or the backend does not.
        """
        if not recording_cells(task):
            names = {type(module).__name__ for module in task.modules() if isinstance(module, RecurrentCell)}
            raise UserError(f"callbacks.cosines: {', '.join(sorted(names))} records no cosines; use it with a RUMCell")
        if any(getattr(module, "backend", None) == "graph" for module in task.modules()):
            raise _backend_refused()

    def on_train_start(self, trainer: Trainer, task: LightningModule) -> None:
        super().on_train_start(trainer, task)
        self._cells = recording_cells(task)

    @torch.no_grad()
    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        with ExitStack() as stack:
            recorded = [stack.enter_context(cell.record_cosines()) for cell in self._cells]
            task(batch)
        recorded = [torch.stack(cell) for cell in recorded if cell]
        if not recorded:  # the replay of a CUDA graph runs no Python
            raise _backend_refused()
        if (lengths := row_lengths(task, batch)) is not None:
            recorded = [_within(cell, batch.inputs.shape[1], lengths) for cell in recorded]
        # clamped, because rounding moves some beyond ±1, and histc ignores these
        cosines = torch.cat([cell.flatten() for cell in recorded]).float().cpu().clamp(-1, 1)
        counts = cosines.histc(self.BINS, -1, 1).double()
        centres = (2 * bin / self.BINS - 1 + 1 / self.BINS for bin in range(self.BINS))
        shares = zip(centres, (counts / counts.sum()).tolist(), strict=True)
        self.write(trainer, {f"{centre:.3g}": share for centre, share in shares})


def _within(cosines: Tensor, steps: int, lengths: Tensor) -> Tensor:
    """Return the cosines (…, B) of some steps that are within the lengths (B,); a cell may run several times a step."""
    step = torch.arange(len(cosines), device=cosines.device) * steps // len(cosines)
    return cosines[step.unsqueeze(1) < lengths]


def _backend_refused() -> OptionError:
    return OptionError("model.backend", "graph", "does not record cosines; use one of reference, fused, compile")


def recording_cells(task: LightningModule) -> list[Any]:
    """Return the cells of a task's model that record cosines."""
    return [module for module in task.modules() if hasattr(module, "record_cosines")]
