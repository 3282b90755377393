"""What happens to the jobs that the tests of launchers and searches run."""

import os
import signal
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, Trainer


class Accident(Callback):
    """Sends a signal to its own process after a step, once.

    Args:
        step: number of optimizer steps taken.
        name: of the signal.
        mark: a file that says that it has happened.
    """

    def __init__(self, step: int, name: str, mark: str) -> None:
        self.step, self.name, self.mark = step, name, Path(mark)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.Signals[self.name])


def accident(step: int, name: str, mark: Path) -> str:
    """Return the override that makes a run have one."""
    return f"+callbacks.accident={{_target_:tests.helpers.launching.Accident,step:{step},name:{name},mark:'{mark}'}}"
