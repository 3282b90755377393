"""Runs a training repeatedly in another process, which kills itself (SIGKILL) at given points.

    python -m tests.helpers.killing <directory> '[[["before_update", 5], ["task=copy", …]], …]'

A child is forked for each pair of a point and arguments, so that torch is imported once. A point is one of the names
below and a number of optimizer steps; null: the run is not killed. Prints the exit statuses of the children as JSON.
"""

import functools
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gyral import train
from gyral.tasks.base import Task
from gyral.training import checkpoints, loggers
from gyral.training.callbacks.finite_guard import FiniteGuard


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, step: int, act: Callable[[], None] = die, patch: Callable[..., None] = setattr) -> None:
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


def arm_replace(step: int, act: Callable[[], None], patch: Callable[..., None], done: bool) -> None:
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


def run_child(point: tuple[str, int] | None, arguments: list[str], log: Path) -> int:
    """Fork a child that runs the command, and return its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if point is not None:
            arm(*point)
        train.loss_curve = lambda *_: None  # half of the time of a small run
        sys.argv = ["src/train.py", *arguments]
        status = 0
        try:
            train.main()
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:  # the child must not continue with the parent's work
            traceback.print_exc()
            status = 99
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps([run_child(*pair, Path(sys.argv[1])) for pair in json.loads(sys.argv[2])]))
