"""The code of the processes that take part in a run but do not write to its directory."""

import logging
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import DictConfig
from pytorch_lightning import Trainer

from gyral.config import own_modules
from gyral.core.errors import OptionError
from gyral.core.signals import Interrupted, stop
from gyral.core.streams import escape_streams
from gyral.runs.directory import (
    CONFIG,
    FAILED,
    Run,
    find_checkpoint,
    load_run,
    read_results,
    read_saved_run,
    resolve,
    with_data_at,
)
from gyral.runs.opening import as_saved, moved_data
from gyral.training import build, loop
from gyral.training.ddp.peers import FINISHED, READY, TICK, StoppedClock, peer_processes
from gyral.training.ddp.strategy import ClusterEnvironment

if TYPE_CHECKING:
    from gyral.training.ddp.group import Group


def main(connection_number: int) -> None:
    """Execute a run in a process that `PeerProcess` started, then wait to be ended.

    Args:
        connection_number: file descriptor of the connection for messages.
    """
    escape_streams()
    logging.getLogger().addHandler(logging.NullHandler())  # the first process logs the same
    connection = Connection(connection_number, readable=False)
    words, run, environment, scratch, threads, limit = pickle.load(sys.stdin.buffer)
    own_modules.set_command(words)
    stop.ask_on_signals()  # all processes stop after the same step, whichever of them has received the signal
    threading.Thread(target=_end_with_first_process, args=(run.directory, limit), daemon=True).start()
    try:
        trainer, task = _build(run, scratch, environment)
        torch.set_num_threads(threads)
        connection.send((time.monotonic(), READY))
        loop.fit(trainer, task, run)
        loop.test(trainer, task, run)
        message = FINISHED
    except Interrupted:
        message = FINISHED
    except BaseException as error:
        summary = "".join(traceback.format_exception_only(error)).strip()
        message = f"{summary}\n{traceback.format_exc()}"
    connection.send((time.monotonic(), message))
    if message != FINISHED:
        os._exit(1)
    while True:
        signal.pause()


def _end_with_first_process(directory: Path, limit: float) -> None:
    """End this process when the first process has ended, and end both when that is stopped for too many seconds."""
    first = os.getppid()
    clock = StoppedClock(first)
    while not select.select([sys.stdin], [], [], TICK)[0]:  # it is readable at its end only
        if clock.tick() >= limit:
            reason = f"process 0 was stopped by a signal and did not continue in {limit:g} seconds"
            (directory / FAILED).write_text(f"{reason}\n", encoding="utf-8", errors="backslashreplace")
            os.kill(first, signal.SIGKILL)
            break
    os._exit(1)


def join(config: DictConfig, group: "Group") -> dict[str, Any]:
    """Execute a run as a process that a launcher has started, other than process 0, and return the final metrics.

    Args:
        config: the configuration.
        group: the processes of the run.

    Raises:
        UserError: this process does not see the run directory.
    """
    logging.getLogger().setLevel(logging.ERROR)  # the first process logs the same
    directory = group.directory
    with tempfile.TemporaryDirectory() as scratch, stop.on_signals():
        starts = group.wait_for_start()
        if not directory.is_dir():
            raise OptionError("hydra.run.dir", directory, "must be on a disk that all processes share")
        if not starts:
            return read_results(directory)
        if config.resume is not None:
            config = with_data_at(load_run(directory, config.get("trust"), "resume"), moved_data()).config
        wanted = resolve(config)
        if config.resume is None and (directory / CONFIG).is_file():
            wanted = as_saved(read_saved_run(directory), wanted)
        run = Run(directory, group.configured(wanted), checkpoint=find_checkpoint(directory))
        trainer, task = _build(run, scratch, group.environment)
        with peer_processes(trainer, run, group):
            loop.fit(trainer, task, run)
            return loop.test(trainer, task, run)


def _build(run: Run, scratch: str, environment: ClusterEnvironment) -> tuple[Trainer, Any]:
    """Return trainer and task of a process that does not write to the run directory."""
    build.configure_process(run.config)
    task = build.build_task(run.config)
    return build.build_trainer(run.config, Path(scratch), environment=environment), task
