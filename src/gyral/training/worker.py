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
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from pytorch_lightning import Trainer

from gyral.core.signals import Interrupted, stop
from gyral.runs.directory import DONE, FAILED, Run, check_resume, find_checkpoint, load_run, read_results, resolve
from gyral.training import build, loop
from gyral.training.ddp.cluster import ClusterEnvironment
from gyral.training.ddp.peers import FINISHED, READY, TICK, StoppedClock, peer_processes


def main(connection_number: int) -> None:
    """Execute a run in a process that `PeerProcess` started, then wait to be ended.

    Args:
        connection_number: file descriptor of the connection for messages.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # the first process logs the same
    connection = Connection(connection_number, readable=False)
    run, environment, scratch, threads, limit = pickle.load(sys.stdin.buffer)
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
            (directory / FAILED).write_text(f"{reason}\n")
            os.kill(first, signal.SIGKILL)
            break
    os._exit(1)


def join(config: DictConfig) -> dict[str, Any]:
    """Execute a run as the first process of a node other than the first node, and return the final metrics.

    The nodes share the run directory, which must be the same for all of them: set hydra.run.dir.
    """
    logging.getLogger().setLevel(logging.ERROR)  # the first process logs the same
    directory = Path(HydraConfig.get().runtime.output_dir)
    check_resume(config, directory)
    if config.resume is not None:
        config = load_run(directory, config.get("trust"), "resume").config
    run = Run(directory, resolve(config), checkpoint=find_checkpoint(directory))
    if (directory / DONE).is_file():
        return read_results(directory)
    with tempfile.TemporaryDirectory() as scratch, stop.on_signals():
        trainer, task = _build(run, scratch)
        with peer_processes(trainer, run):
            loop.fit(trainer, task, run)
            return loop.test(trainer, task, run)


def _build(run: Run, scratch: str, environment: ClusterEnvironment | None = None) -> tuple[Trainer, Any]:
    """Return trainer and task of a process that does not write to the run directory."""
    build.configure_process(run.config)
    task = build.build_task(run.config)
    return build.build_trainer(run.config, Path(scratch), environment=environment), task
