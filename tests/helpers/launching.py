"""What happens to the jobs that the tests of launchers and searches run."""

import json
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer

from gyral.runs.directory import FILES
from gyral.training.callbacks.statistics import peak_memory


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


class Witness(Callback):
    """Writes the state of its process to witness.json in the run directory when the training starts."""

    def on_fit_start(self, trainer: Trainer, *_: Any) -> None:
        open_files = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
        state = {
            "pid": os.getpid(),
            "peak": peak_memory(),
            "cwd": os.getcwd(),
            "arguments": sys.argv[1:],
            "environment": dict(os.environ),
            "open files": sorted(name for name in map(os.path.basename, open_files) if name in FILES),
            "handlers": [type(handler).__name__ for handler in logging.getLogger().handlers],
            "data limit": resource.getrlimit(resource.RLIMIT_DATA),
            "threads": torch.get_num_threads(),
            "dtype": str(torch.get_default_dtype()),
            "deterministic": torch.are_deterministic_algorithms_enabled(),
            "flushes subnormals": (torch.tensor([1e-39]) * 1).item() == 0,
            "matmul precision": torch.get_float32_matmul_precision(),
        }
        Path(trainer.default_root_dir, "witness.json").write_text(json.dumps(state), encoding="utf-8")


WITNESS = "+callbacks.witness={_target_:tests.helpers.launching.Witness}"


def read_witness(directory: Path) -> dict[str, Any]:
    """Return what the witness of a run has seen."""
    state: dict[str, Any] = json.loads((directory / "witness.json").read_text())
    return state


def slow(seconds: float, until: Path | None = None) -> str:
    """Return the override that makes each step of a run take some time, see `Slow`."""
    until_that = "" if until is None else f",until:'{until}'"
    return f"+callbacks.slow={{_target_:tests.helpers.launching.Slow,seconds:{seconds}{until_that}}}"


def accident(step: int, name: str, mark: Path) -> str:
    """Return the override that makes a run have one."""
    return f"+callbacks.accident={{_target_:tests.helpers.launching.Accident,step:{step},name:{name},mark:'{mark}'}}"
