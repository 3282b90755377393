"""Reads, writes and validates checkpoints: plain containers and tensors that load with `weights_only=True`."""

import logging
import pickle
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.files import replace_when_written
from gyral.runs import legacy
from gyral.runs.directory import BEST_CHECKPOINT, LAST_CHECKPOINT
from gyral.tasks.base import SequenceTask

log = logging.getLogger(__name__)


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically, and reads them without executing code from the file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        replace_when_written(Path(path), partial(torch.save, checkpoint))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return load_checkpoint(Path(path))


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint of this or an older version.

    Raises:
        OptionError: the file is missing, truncated or not a checkpoint, or would execute code.
    """
    try:
        with warnings.catch_warnings(action="ignore"):  # torch recommends to load the file with weights_only=False
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise OptionError("checkpoint", path, "no such file") from None
    except pickle.UnpicklingError:
        raise OptionError("checkpoint", path, "is truncated, is not a checkpoint, or would execute code") from None
    except (OSError, RuntimeError, EOFError, ValueError, KeyError):
        raise OptionError("checkpoint", path, "is truncated or not a checkpoint") from None
    if not isinstance(checkpoint, dict) or not {"state_dict", "global_step", "loops"} <= set(checkpoint):
        raise OptionError("checkpoint", path, "was not written by a training run")
    return legacy.translate_checkpoint(checkpoint)


def validate_checkpoint(task: SequenceTask, path: Path) -> int:
    """Check that a checkpoint is of this task and model, and return its number of optimizer steps.

    Raises:
        OptionError: the file is not a usable checkpoint, or names or shapes of weights differ.
    """
    checkpoint = load_checkpoint(path)
    saved = {name: tuple(value.shape) for name, value in checkpoint["state_dict"].items()}
    expected = {name: tuple(value.shape) for name, value in task.state_dict().items()}
    for name in sorted({*saved, *expected}):
        if saved.get(name) != expected.get(name):
            raise OptionError(
                "checkpoint",
                path,
                f"is of another model; {name} is {saved.get(name, 'absent')} in the checkpoint and"
                f" {expected.get(name, 'absent')} in the model",
            )
    task.check_checkpoint(checkpoint)
    return int(checkpoint["global_step"])


def load_weights(task: SequenceTask, run_directory: Path) -> None:
    """Initialize a task with the weights of a run's best checkpoint, except the weights that may be missing in it.

    Raises:
        UserError: the run has no checkpoint, or one of another model.
    """
    path = choose_checkpoint(run_directory, "best")
    checkpoint = load_checkpoint(path)
    task.check_checkpoint(checkpoint)
    try:
        task.load_state_dict(checkpoint["state_dict"])
    except RuntimeError:
        validate_checkpoint(task, path)  # raises an error that names the first difference
        raise
    log.info("Training starts from the weights of %s (step %d)", path, checkpoint["global_step"])


def choose_checkpoint(run_directory: Path, name: str) -> Path:
    """Return the path of a run's "best" or "last" checkpoint; the last one if there is no best one.

    Raises:
        UserError: another name, or the run has no checkpoint.
    """
    check_choice("checkpoint", name, ("best", "last"))
    candidates = [LAST_CHECKPOINT] if name == "last" else [BEST_CHECKPOINT, LAST_CHECKPOINT]
    for candidate in candidates:
        if (run_directory / candidate).is_file():
            return run_directory / candidate
    raise OptionError("run", run_directory, "has no checkpoint; it was stopped before its first one")
