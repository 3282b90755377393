"""Shows an example after each validation."""

import os
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer

from gyral.core.errors import printable
from gyral.core.files import named_in_errors
from gyral.runs.directory import EXAMPLES
from gyral.training.callbacks.after_validation import AfterValidation


class Examples(AfterValidation):
    """After each validation, appends one rendered example to examples.txt and logs it to loggers that support text.

    A checkpoint has the length of the file. A resumed run truncates the file to this length, because it writes later
    examples again.
    """

    FILE = EXAMPLES

    def __init__(self) -> None:
        super().__init__()
        self._path: Path
        self._length: int | None = None  # of the file in bytes, at the checkpoint from which the run resumes

    def state_dict(self) -> dict[str, Any]:
        return {"length": self._path.stat().st_size if self._path.is_file() else 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._length = state["length"]

    def setup(self, trainer: Trainer, task: Any, stage: str) -> None:
        self._path = Path(trainer.default_root_dir) / EXAMPLES

    def begin(self, trainer: Trainer) -> None:
        length = 0 if trainer.global_step == 0 else self._length
        # checkpoints of older versions have no length
        if length is not None and self._path.is_file() and self._path.stat().st_size > length:
            os.truncate(self._path, length)

    @torch.no_grad()
    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        example = printable(task.render(batch, task.predict(batch)))  # a corpus may have any characters
        with named_in_errors(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(f"step {trainer.global_step}\n{example}\n\n")
        for logger in trainer.loggers:
            if hasattr(logger, "log_html"):
                logger.log_html("example", example, step=trainer.global_step - 1)
