"""Reads, writes and validates checkpoints: plain containers and tensors that load with `weights_only=True`.

A checkpoint is a file of `torch.save`, that is, a zip archive. The comment at its end is the SHA-256 checksum of all
bytes before it, so that `torch.load` and `unzip` read the file, too. Older versions wrote no comment; of their
checkpoints, the CRC-32 checksums are verified that an archive has for each of its records.
"""

import errno
import hashlib
import json
import logging
import math
import os
import pickle
import struct
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch import Tensor

from gyral.config.plain import as_config
from gyral.core.errors import OptionError, UserError, one_line
from gyral.core.files import replace_when_written
from gyral.core.forms import FormError, check_form, check_number
from gyral.core.inputs import BoundError, check_members, excerpt
from gyral.runs.data_files import make_paths_absolute
from gyral.runs.directory import (
    BEST_CHECKPOINT,
    CONFIG,
    LAST_CHECKPOINT,
    METRICS,
    PREVIOUS_CHECKPOINT,
    Run,
    check_saved_config,
    checkpoint_of_weights,
    load_run,
    saved_values,
)
from gyral.runs.metrics_file import read_rows
from gyral.tasks.base import Task

log = logging.getLogger(__name__)

DAMAGED_CHECKPOINT = "checkpoints/damaged.ckpt"
MOST_VALUES = 2**21  # in the containers of a checkpoint, of which the random states of each process have 1,250
PICKLE, LARGE = "/data.pkl", b"\nbytearray\n"  # the one class that torch loads and that fills memory of any size
CHECKSUM = b"sha256:"  # what the comment begins with
CHECKSUM_LENGTH = len(CHECKSUM) + 64


class DamagedCheckpointError(OptionError):
    """A checkpoint is missing or damaged."""


class SafeCheckpointIO(TorchCheckpointIO):
    """Writes checkpoints atomically, and reads them without executing code from the file.

    When a new last checkpoint has been written, the former one becomes the previous one.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        def write(temporary: Path) -> None:
            try:
                with temporary.open("wb") as file:  # not by its path: the name would be in the archive
                    torch.save(checkpoint, file)
            except RuntimeError as error:  # such as "unexpected pos 2624"
                raise OSError(errno.EIO, "cannot be written; the disk may be full") from error
            add_checksum(temporary)
            if path.name == Path(LAST_CHECKPOINT).name and path.is_file():
                _keep_previous(path)

        path = Path(path)
        replace_when_written(path, write)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return load_checkpoint(Path(path))


def _keep_previous(last: Path) -> None:
    """Make the last checkpoint the previous one, too."""
    previous = last.with_name(Path(PREVIOUS_CHECKPOINT).name)
    previous.unlink(missing_ok=True)
    try:
        os.link(last, previous)
    except OSError:  # the file system has no hard links
        os.replace(last, previous)


def add_checksum(path: Path) -> None:
    """Append the checksum to a file that `torch.save` has written."""
    with path.open("r+b") as file:
        file.seek(-2, os.SEEK_END)  # the length of the comment, 0, ends the archive
        file.write(struct.pack("<H", CHECKSUM_LENGTH))
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.write(CHECKSUM + digest.encode())


def verify_checksum(path: Path) -> None:
    """Verify the checksum of a checkpoint or, in one of an older version, the checksums of its records.

    Raises:
        DamagedCheckpointError: the file is missing or damaged.
    """
    # A run that has another checkpoint can use it instead.
    instead = "; without this file, the last checkpoint is used" if path.name == Path(BEST_CHECKPOINT).name else ""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            content = max(0, size - CHECKSUM_LENGTH)
            file.seek(content)
            comment = file.read()
            has_checksum = comment.startswith(CHECKSUM)
            is_whole = not has_checksum or comment == CHECKSUM + _digest(file, content)
            if is_whole:
                with zipfile.ZipFile(file) as archive:
                    check_members(archive, size, most=size)  # torch packs none
                    is_whole = all(record.compress_type == zipfile.ZIP_STORED for record in archive.infolist())
                    if not has_checksum:
                        is_whole = is_whole and not archive.comment and archive.testzip() is None
                    if any(LARGE in archive.read(name) for name in archive.namelist() if name.endswith(PICKLE)):
                        raise BoundError("declares an array of bytes")
    except FileNotFoundError:
        raise DamagedCheckpointError("checkpoint", path, "no such file") from None
    except BoundError as error:
        raise DamagedCheckpointError("checkpoint", path, f"{error}{instead}") from None
    except (zipfile.BadZipFile, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError):
        raise DamagedCheckpointError("checkpoint", path, f"is damaged or not a checkpoint{instead}") from None
    except OSError as error:
        raise DamagedCheckpointError("checkpoint", path, f"{error.strerror}{instead}") from None
    if not is_whole:
        raise DamagedCheckpointError("checkpoint", path, f"is damaged: a checksum does not match{instead}")


def _digest(file: Any, size: int) -> bytes:
    """Return the hexadecimal SHA-256 checksum of the first bytes of a file."""
    checksum = hashlib.sha256()
    file.seek(0)
    while size and (block := file.read(min(size, 2**20))):
        checksum.update(block)
        size -= len(block)
    return checksum.hexdigest().encode()


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint of this or an older version.

    Raises:
        OptionError: the file is missing, damaged or not a checkpoint, or would execute code.
    """
    verify_checksum(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # torch recommends to load the file with weights_only=False
            checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise OptionError("checkpoint", path, "is not a checkpoint, or would execute code") from None
    except Exception:  # whatever torch raises for an archive of something else
        raise OptionError("checkpoint", path, "is not a checkpoint") from None
    if not _is_finite(checkpoint):
        raise OptionError("checkpoint", path, f"has more than {MOST_VALUES:,} values, which no run writes")
    if not isinstance(checkpoint, dict) or not {"state_dict", "global_step", "loops"} <= set(checkpoint):
        raise OptionError("checkpoint", path, "was not written by a training run")
    return checkpoint


def _is_finite(content: Any) -> bool:
    """Return whether containers have at most `MOST_VALUES` values: they may contain each other many times."""
    left, count = [content], 0
    while left and count <= MOST_VALUES:
        node = left.pop()
        count += 1
        if isinstance(node, dict):
            left += node.values()
        elif isinstance(node, list | tuple | set):
            left += node
    return not left


def save_config(task: Task, config: DictConfig) -> None:
    """Let the checkpoints of a task contain its configuration, where Lightning saves the arguments of a module."""
    task.save_hyperparameters(make_paths_absolute(saved_values(config)), logger=False)


def read_saved_config(path: Path, trust: Any = None) -> DictConfig:
    """Return the configuration of a checkpoint; of one of an older version, that of its run directory.

    Args:
        path: the checkpoint.
        trust: the modules besides Gyral's own that the configuration may name, see `gyral.config.trust`.

    Raises:
        UserError: the file is not a checkpoint, or has no configuration, or one that names an untrusted module.
    """
    config = load_checkpoint(path).get(Task.CHECKPOINT_HYPER_PARAMS_KEY)
    directory = path.absolute().parent.parent
    if config is None and (directory / CONFIG).is_file():
        return load_run(directory, trust, "checkpoint").config
    try:
        config = json.loads(json.dumps(config))
    except (TypeError, ValueError, RecursionError):  # a tensor, or a container that contains itself
        config = None
    if not isinstance(config, dict):
        raise OptionError("checkpoint", path, "has no configuration; the task must have been built by gyral.build")
    try:
        check_saved_config(config, path, "checkpoint", trust)
        return as_config(config)
    except RecursionError:
        raise OptionError("checkpoint", path, "has a configuration with too deeply nested values") from None


def validate_last(task: Task, run_directory: Path) -> int:
    """Check the last checkpoint of a run as `validate_checkpoint` does, and return its number of optimizer steps.

    If it is damaged, the previous checkpoint takes its place, and it is renamed to damaged.ckpt.

    Raises:
        OptionError: neither checkpoint is usable.
    """
    last, previous = run_directory / LAST_CHECKPOINT, run_directory / PREVIOUS_CHECKPOINT
    try:
        return validate_checkpoint(task, last)
    except DamagedCheckpointError as error:
        try:
            step = validate_checkpoint(task, previous)
        except DamagedCheckpointError:
            reason = f"{error.reason}; without the folder {last.parent}, the run starts from step 0"
            raise OptionError("checkpoint", last, reason) from None
        if last.is_file():
            os.replace(last, run_directory / DAMAGED_CHECKPOINT)
        os.replace(previous, last)
        log.warning("%s; the previous checkpoint is used (step %d)", error, step)
        return step


def prepare_start(task: Task, run: Run) -> int:
    """Return the number of optimizer steps of the checkpoint from which a run resumes, after validating it.

    A new run takes the weights that the option `weights` names, if any; the number is 0.

    Raises:
        UserError: a checkpoint that does not fit.
    """
    if run.checkpoint is not None:
        from gyral.runs.before_end import folder_before_end, remove_other_ends  # now: a new run has no end

        step = validate_last(task, run.directory)
        remove_other_ends(run.directory, step)
        before_end = folder_before_end(run.directory, step) / Path(LAST_CHECKPOINT).name
        if step < run.config.trainer.max_steps and before_end.is_file():  # the run is longer now and continues from it
            validate_checkpoint(task, before_end)
        logged = _last_logged_step(run.directory)
        if logged > step:
            log.info("Steps %d to %d were taken after the last checkpoint and are trained again", step + 1, logged)
        return step
    if run.config.weights is not None:
        load_weights(task, run.config.weights)
    return 0


def _last_logged_step(run_directory: Path) -> int:
    """Return the number of optimizer steps at the last row of metrics.csv, 0 without a file."""
    path = run_directory / METRICS
    rows = read_rows(path)[1] if path.is_file() else []
    return max((int(row["step"]) + 1 for row in rows if row.get("train/loss")), default=0)


def validate_checkpoint(task: Task, path: Path) -> int:
    """Check that a checkpoint is of this task and model, and return its number of optimizer steps.

    Raises:
        OptionError: the file is not a usable checkpoint, or is of other data, or names or shapes of weights differ.
    """
    checkpoint = load_checkpoint(path)
    with named_contents(path):
        check_number("global_step", checkpoint["global_step"], 0)
        check_form("substitutes", checkpoint.get("substitutes", {}), task.substitutes())
        for name, value in checkpoint.get("substitutes", {}).items():
            check_number(f"substitutes.{name}", value, math.inf)
    if checkpoint.get("substitutes", task.substitutes()) != task.substitutes():  # older versions saved none
        trained, here = (
            ", ".join(f"{name}={value:g}" for name, value in each.items())
            for each in (checkpoint["substitutes"], task.substitutes())
        )
        reason = f"was trained on other data ({trained}) than the data folder has here ({here})"
        raise OptionError("checkpoint", path, f"{reason}; put the data of the run where its config.yaml has data_dir")
    with named_contents(path):
        saved = {name: tuple(value.shape) for name, value in _weights(checkpoint).items()}
    expected = {name: tuple(value.shape) for name, value in task.state_dict().items()}
    for name in sorted({*saved, *expected}):
        if saved.get(name) != expected.get(name):
            raise OptionError(
                "checkpoint",
                path,
                f"is of another model; {name} is {saved.get(name, 'absent')} in the checkpoint and"
                f" {expected.get(name, 'absent')} in the model",
            )
    with named_contents(path):
        _check_weights(task, checkpoint)
        task.check_checkpoint(checkpoint)
    return int(checkpoint["global_step"])


@contextmanager
def named_contents(path: Path | str | None) -> Iterator[None]:
    """Raise `OptionError` with the name of a checkpoint, if there is one, for an error of its contents of any type."""
    try:
        yield
    except Exception as error:
        if not path or isinstance(error, UserError):
            raise
        kind = "" if isinstance(error, FormError) else f"has other contents than a run writes: {type(error).__name__}: "
        raise OptionError("checkpoint", path, f"{kind}{one_line(error)}") from error


def _weights(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint.

    Raises:
        FormError: they are not tensors with names.
    """
    weights = checkpoint["state_dict"]
    if not isinstance(weights, dict):
        raise FormError("has no weights")
    for name, value in weights.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise FormError(f"has no tensor as the weight {excerpt([str(name)])}")
    return weights


def _check_weights(task: Task, checkpoint: dict[str, Any]) -> None:
    """Check the types of the weights; those of the callback Averaging are in a second place."""
    for place in ("state_dict", "current_model_state"):
        check_form(place, checkpoint.get(place, {}), task.state_dict())


def load_weights(task: Task, weights: Any) -> None:
    """Initialize a task with the weights of a run's best checkpoint, except the weights that may be missing in it.

    Args:
        task: the task.
        weights: the option `weights`, the run directory.

    Raises:
        UserError: the value is not a run directory; the run has no checkpoint, or one of another model.
    """
    path = checkpoint_of_weights(weights)
    try:
        checkpoint = load_checkpoint(path)
        with named_contents(path):
            task.check_checkpoint(checkpoint)
            weights_of_run = _weights(checkpoint)
        try:
            task.load_state_dict(weights_of_run)
        except RuntimeError:
            validate_checkpoint(task, path)  # raises an error that names the first difference
            raise
        with named_contents(path):
            _check_weights(task, checkpoint)
    except OptionError as error:  # of the checkpoint
        raise OptionError("weights", weights, f"its checkpoint {path.name} {error.reason}") from error.__cause__
    log.info("Training starts from the weights of %s (step %d)", path, checkpoint["global_step"])
