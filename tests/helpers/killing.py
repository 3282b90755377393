"""Makes a process kill itself (SIGKILL) at a given point of a training.

A point is one of the names below and a number of optimizer steps.
"""

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gyral.tasks.base import Task
from gyral.training import checkpoints, loggers
from gyral.training.callbacks.finite_guard import FiniteGuard


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, step: int, act: Callable[[], object] = die, patch: Callable[..., None] = setattr) -> None:
    """Make this process kill itself, or call another function, at a point of a run after a number of optimizer steps.

    Args:
        point: one of the names below.
        step: number of optimizer steps.
        act: the function to call.
        patch: sets an attribute, like `setattr`.
    """

    def before(owner: type, method: str, due: Callable[..., bool], first: Callable[..., None] | None = None) -> None:
        original = getattr(owner, method)

        @functools.wraps(original)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            if due(*arguments, **options):
                if first is not None:
                    first(*arguments, **options)
                act()
            return original(*arguments, **options)

        patch(owner, method, wrapped)

    def write_half(file: Any, **_: Any) -> None:
        with file.path.open("a") as stream:
            stream.write(f"{step},2.3")

    if point == "before_step":
        before(Task, "training_step", lambda task, *_: task.global_step == step)
    elif point == "before_update":
        before(FiniteGuard, "on_before_optimizer_step", lambda _, trainer, *__: trainer.global_step == step)
    elif point == "in_validation":
        before(Task, "validation_step", lambda task, batch, index: task.global_step == step and index == 1)
    elif point == "in_test":
        before(Task, "test_step", lambda task, batch, index: index == 1)
    elif point == "in_metrics":
        before(loggers.MetricsFile, "log_metrics", lambda file, **row: row["step"] == step, write_half)
    elif point in ("before_replace", "after_replace"):
        arm_replace(step, act, patch, done=point == "after_replace")
    else:
        raise ValueError(point)


def arm_replace(step: int, act: Callable[[], object], patch: Callable[..., None], done: bool) -> None:
    """Call a function right before or after the temporary file of a step's last.ckpt replaces the former one."""
    save = checkpoints.SafeCheckpointIO.save_checkpoint
    replace = os.replace
    under_way: list[int] = []

    def replace_and_act(source: Any, target: Any) -> None:
        due = under_way == [step] and Path(target).name == "last.ckpt"
        if due and not done:
            act()
        replace(source, target)
        if due and done:
            act()

    def wrapped(io: Any, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        under_way[:] = [checkpoint["global_step"]]
        save(io, checkpoint, path, storage_options)

    patch(os, "replace", replace_and_act)
    patch(checkpoints.SafeCheckpointIO, "save_checkpoint", wrapped)
