"""Several processes that train one model together (trainer=ddp), started and ended with each job.

Lightning would start the others by this process's command line, which in a sweep has each of them run the whole sweep,
and leave its variables in the environment of the next job. Here the first process starts the others of its node with
the job's own resolved configuration. It alone keeps the run directory; the others write to a folder that is thrown
away.

All processes see the whole of every batch and take their own rows of it, so that what a run computes and where it
stands in its data do not depend on how many there are.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from lightning_fabric.plugins.environments import LightningEnvironment
from omegaconf import DictConfig
from pytorch_lightning import Trainer
from pytorch_lightning.overrides.distributed import _sync_module_states
from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry
from torch import Tensor, distributed

from gyral import runs
from gyral.core.errors import OptionError
from gyral.core.signals import SIGNALS, Interrupted, stop
from gyral.data.batching import mix_seed

# seconds: until a process whose neighbour failed is ended if it does not notice; for a neighbour to tell that it failed
# first; for the others to come to the end after the first
GRACE, LAST_WORDS, PARTING = 15.0, 1.0, 60.0
READY, DONE = "ready", "done"


class ProcessError(RuntimeError):
    """Another process of the job failed."""


class Place(LightningEnvironment):
    """Which of the processes this is, and where the first one is met.

    Args:
        local_rank: number of the process on its node; process 0 starts the others.
        node: number of the node.
        address, port: of the first process; a free port of this machine if None.
    """

    def __init__(self, local_rank: int = 0, node: int = 0, address: str = "127.0.0.1", port: int | None = None) -> None:
        super().__init__()
        self._local_rank, self._node, self._address = local_rank, node, address
        self._main_port = -1 if port is None else port

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return self._address

    def local_rank(self) -> int:
        return self._local_rank

    def node_rank(self) -> int:
        return self._node

    def beside(self, local_rank: int) -> "Place":
        """Return the place of another process of this node."""
        return Place(local_rank, self._node, self._address, self.main_port)

    def teardown(self) -> None:
        """Lightning's would remove a variable that was not set here."""


def own_place(config: DictConfig) -> Place:
    """Return the place of the process that a user started, of which there is one on each node.

    Raises:
        OptionError: there are several nodes, and the environment does not say which this is.
    """
    nodes = config.trainer.get("num_nodes", 1)
    if nodes == 1:
        return Place()
    try:
        node, port = int(os.environ["NODE_RANK"]), int(os.environ["MASTER_PORT"])
        address = os.environ["MASTER_ADDR"]
    except (KeyError, ValueError) as error:
        raise OptionError(
            f"trainer.num_nodes={nodes}: start the same command on each node, with NODE_RANK (0, 1, …), MASTER_ADDR and"
            f" MASTER_PORT (of node 0) in its environment; {error} is missing or no number"
        ) from None
    return Place(0, node, address, port)


class DDP(DDPStrategy):
    """Lightning's, without what starts processes by the command line, and without torch's wrapper of the model.

    The wrapper averages gradients while others are still being computed, which is of no use where all of them are ready
    only at the end of backpropagation through time; it orders them anew after the first step, with which the sums of
    three or more processes round otherwise in a run that is continued; and it sends constants at every step.
    """

    def _configure_launcher(self) -> None:
        self._launcher = None

    def setup_environment(self) -> None:
        super().setup_environment()
        if self.global_rank > 0:  # dropout and zoneout of its own rows
            torch.manual_seed(mix_seed(torch.initial_seed(), f"process {self.global_rank}"))

    def setup(self, trainer: Trainer) -> None:
        # Lightning's handler of SIGTERM would send to the other processes amid whatever they are sending to each other
        trainer._signal_connector.register_signal_handlers = lambda: None
        super().setup(trainer)

    def configure_ddp(self) -> None:
        _sync_module_states(self.model)

    def post_backward(self, closure_loss: Tensor) -> None:
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        mean = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(mean)
        mean /= self.world_size
        parts = mean.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


StrategyRegistry.register("ddp", DDP, override=True)  # what Lightning's "auto" stands for, too


@contextmanager
def together(trainer: Trainer, run: runs.Run) -> Iterator[None]:
    """Have the other processes of this node take part in the body, where the trainer wants more than one.

    However the body ends, they have ended afterwards, and nothing is left of them in this process.

    Raises:
        ProcessError: one of them failed.
    """
    strategy = trainer.strategy
    if not isinstance(strategy, DDP):
        yield
        return
    variables = {name: os.environ.get(name) for name in ("MASTER_ADDR", "MASTER_PORT")}
    threads = torch.get_num_threads()
    if run.config.threads is None:
        torch.set_num_threads(max(1, threads // strategy.num_processes))
    place = strategy.cluster_environment
    assert isinstance(place, Place)
    others: list[_Other] = []
    body_ended = threading.Event()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                for rank in range(1, strategy.num_processes):
                    others.append(_Other(run, place.beside(rank), scratch))
                for other in others:
                    other.expect(READY)
                for other in others:
                    threading.Thread(target=_guard, args=(other, body_ended, run.directory), daemon=True).start()
                yield
                for other in others:
                    other.expect(DONE, PARTING)
            except ProcessError:
                raise
            except RuntimeError as error:  # what torch raises when another process is gone
                failure = _first_failure(others)
                if failure is None:
                    raise
                raise ProcessError(failure) from error
            finally:
                body_ended.set()
                with _signals_held():
                    for other in others:
                        other.end()
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        for name, value in variables.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        torch.set_num_threads(threads)


class _Other:
    """Another process of this node: started, listened to, ended.

    No fork, which threads of torch and of the loggers do not survive; not by multiprocessing, which takes signals in
    between, and cannot start a process from one that joblib has started.
    """

    def __init__(self, run: runs.Run, place: Place, scratch: str) -> None:
        self.name = f"process {place.local_rank()}"
        self.ears, mouth = Pipe(duplex=False)
        command = [sys.executable, "-c", f"from gyral.training import ddp; ddp.take_part({mouth.fileno()})"]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with _signals_held():  # in the new process for ever: the first one decides when all stop
            self.process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, pass_fds=[mouth.fileno()])
        mouth.close()
        assert self.process.stdin is not None
        pickle.dump((run, place, scratch, torch.get_num_threads()), self.process.stdin)
        self.process.stdin.flush()  # and not closed: its end tells the process that this one is gone

    def expect(self, word: str, seconds: float | None = None) -> None:
        """Wait until the process says a word.

        Raises:
            ProcessError: it says or does something else.
        """
        if not self.ears.poll(seconds):
            raise ProcessError(f"{self.name} did not come to an end")
        _, heard = self.hear()
        if heard != word:
            raise ProcessError(heard)

    def hear(self) -> tuple[float, str]:
        """Return when it said something, and what; 0 and how it ended if it did not even say that it failed."""
        try:
            moment, heard = self.ears.recv()
            return moment, heard if heard in (READY, DONE) else f"{self.name}: {heard}"
        except EOFError:
            return 0.0, f"{self.name} ended with exit status {self.process.wait()}"

    def end(self) -> None:
        """End the process, which by now has nothing to do or nobody to do it with."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.ears.close()


def _first_failure(others: list[_Other]) -> str | None:
    """Return what the first of the processes to fail says, None where none does."""
    speaking = wait([other.ears for other in others], LAST_WORDS)
    heard = [other.hear() for other in others if other.ears in speaking]
    return min((words for words in heard if words[1] not in (READY, DONE)), default=(0.0, None))[1]


def _guard(other: _Other, body_ended: threading.Event, directory: Path) -> None:
    """End this process where another one has ended and this one waits for it, as it does on GPUs for many minutes."""
    other.process.wait()
    if not body_ended.wait(GRACE):
        failure = _first_failure([other])
        (directory / runs.FAILED).write_text(f"{failure}\n")
        print(f"error: {str(failure).splitlines()[0]}", file=sys.stderr, flush=True)
        os._exit(1)


def join(config: DictConfig) -> dict[str, Any]:
    """Do what the first process does, as the one that a user started on another node, but keep no records.

    The nodes share the run directory, which has to be the same for all: give hydra.run.dir.
    """
    from gyral.train import fit_and_measure

    logging.getLogger().setLevel(logging.ERROR)  # the first process says the same
    directory = Path(HydraConfig.get().runtime.output_dir)
    if config.resume is not None:
        config = runs.load(directory).config
    last = directory / runs.LAST_CHECKPOINT
    run = runs.Run(directory, runs.resolve(config), checkpoint=last if last.is_file() else None)
    if (directory / runs.DONE).is_file():
        return runs.read_results(directory)
    with tempfile.TemporaryDirectory() as scratch, stop.on_signals():
        trainer, task = _build(run, scratch)
        with together(trainer, run):
            return fit_and_measure(trainer, task, run)


def _build(run: runs.Run, scratch: str, place: Place | None = None) -> tuple[Trainer, Any]:
    """Return trainer and task of a process that keeps no records."""
    from gyral.training import build

    build.prepare(run.config)
    task = build.build_task(run.config)
    return build.build_trainer(run.config, Path(scratch), [], place=place), task


def take_part(mouth_number: int) -> None:
    """Do, in a process that `_Other` started, what the first one does, but keep no records; wait for the end to come.

    Args:
        mouth_number: file descriptor of the connection to speak to.
    """
    from gyral.train import fit_and_measure

    logging.getLogger().addHandler(logging.NullHandler())  # the first process says the same
    mouth = Connection(mouth_number, readable=False)
    run, place, scratch, threads = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_first, daemon=True).start()
    try:
        trainer, task = _build(run, scratch, place)
        torch.set_num_threads(threads)
        mouth.send((time.monotonic(), READY))
        fit_and_measure(trainer, task, run)
        words = DONE
    except Interrupted:
        words = DONE
    except BaseException as error:
        summary = "".join(traceback.format_exception_only(error)).strip()
        words = f"{summary}\n{traceback.format_exc()}"
    mouth.send((time.monotonic(), words))
    if words != DONE:
        os._exit(1)
    while True:
        signal.pause()


def _end_with_the_first() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Put off Ctrl-C and SIGTERM; a process that is started here has them put off for ever."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
