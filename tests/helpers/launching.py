"""What happens to the jobs that the tests of launchers and searches run."""

import os
import signal
import time
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


class Slow(Callback):
    """Makes each step take some time, without using the processor.

    Args:
        seconds: time per step.
        until: a file that ends this when it exists.
    """

    def __init__(self, seconds: float, until: str | None = None) -> None:
        self.seconds, self.until = seconds, until

    def on_train_batch_start(self, *_: Any) -> None:
        if self.until is None or not Path(self.until).exists():
            time.sleep(self.seconds)


def slow(seconds: float, until: Path | None = None) -> str:
    """Return the override that makes each step of a run take some time, see `Slow`."""
    until_that = "" if until is None else f",until:'{until}'"
    return f"+callbacks.slow={{_target_:tests.helpers.launching.Slow,seconds:{seconds}{until_that}}}"


def accident(step: int, name: str, mark: Path) -> str:
    """Return the override that makes a run have one."""
    return f"+callbacks.accident={{_target_:tests.helpers.launching.Accident,step:{step},name:{name},mark:'{mark}'}}"
