"""A replacement for the trainer."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from gyral.training.callbacks.checkpoints import Checkpoints


class Recorder(SimpleNamespace):
    """Stands in for the trainer, and records which checkpoints are saved."""

    def __init__(self, task: Any, *, max_steps: int = 100, interval: int | None = 10) -> None:
        super().__init__(
            state=SimpleNamespace(fn="fit"),
            sanity_checking=False,
            fast_dev_run=False,
            should_stop=False,
            current_epoch=0,
            strategy=SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision),
            callback_metrics={},
            global_step=0,
            max_steps=max_steps,
            fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace(_should_check_val_fx=self._validates)),
            interval=interval,
            accumulate_grad_batches=1,
            lightning_module=task,
            default_root_dir="",
            saved=[],
        )

    def _validates(self, _: Any) -> bool:
        return self.interval is not None and self.global_step % self.interval == 0

    def save_checkpoint(self, path: Path) -> None:
        self.saved.append((Path(path).name, self.global_step))

    def take_steps(self, callback: Checkpoints, last: int, scores: dict[int, float]) -> list[tuple[str, int]]:
        """Take steps up to `last`, with a validation for each score; return the saved checkpoints."""
        for self.global_step in range(1, last + 1):
            callback.on_train_batch_end(self, self.lightning_module, None, None, self.global_step - 1)
            if self.global_step in scores:
                self.callback_metrics[self.lightning_module.monitor] = torch.tensor(scores[self.global_step])
                callback.on_validation_end(self, self.lightning_module)
        if last == self.max_steps:
            callback.on_train_end(self, self.lightning_module)
        return self.saved
