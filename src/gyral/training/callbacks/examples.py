"""Shows an example after each validation."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer

from gyral.runs.directory import EXAMPLES
from gyral.training.callbacks.after_validation import AfterValidation


class Examples(AfterValidation):
    """After each validation, appends one rendered example to examples.txt and logs it to loggers that support text."""

    @torch.no_grad()
    def inspect(self, trainer: Trainer, task: Any, batch: Any) -> None:
        example = task.render(batch, task.predict(batch))
        with (Path(trainer.default_root_dir) / EXAMPLES).open("a") as file:
            file.write(f"step {trainer.global_step}\n{example}\n\n")
        for logger in trainer.loggers:
            if hasattr(logger, "log_text"):  # Weights & Biases
                row = [trainer.global_step, example]
                logger.log_text("example", columns=["step", "example"], data=[row], step=trainer.global_step - 1)
            elif hasattr(logger.experiment, "add_text"):  # TensorBoard
                logger.experiment.add_text("example", f"<pre>{example}</pre>", trainer.global_step)
