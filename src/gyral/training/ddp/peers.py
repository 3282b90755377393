"""Starts, watches and ends the other processes of a node."""

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import torch
from pytorch_lightning import Trainer
from torch import distributed

from gyral.config import own_modules
from gyral.core.signals import SIGNALS
from gyral.runs.directory import FAILED, Run
from gyral.training.ddp.strategy import ClusterEnvironment

# Time limits in seconds: of this process after a peer has ended early, until it is ended; of the message of a failed
# peer; of the peers to finish after this process; of a process that is stopped (SIGSTOP), until the run is ended.
GRACE, MESSAGE, FINISH, STOPPED = 15.0, 1.0, 60.0, 60.0
TICK = 1.0  # seconds between two looks at the state of a process
START = "import sys; sys.path[:] = sys.argv[2:]; from gyral.training import worker; worker.main(int(sys.argv[1]))"
READY, FINISHED = "ready", "finished"  # messages of a peer


class ProcessError(RuntimeError):
    """Another process of the run failed.

    Args:
        report: the reason in one line, and in further lines the traceback, which becomes a note.
    """

    def __init__(self, report: str) -> None:
        reason, _, trace = report.partition("\n")
        super().__init__(reason)
        if trace:
            self.add_note(trace)


@contextmanager
def peer_processes(trainer: Trainer, run: Run, group: Any = None) -> Iterator[None]:
    """Let the other processes of a run execute the body, too. Start those of this node that no launcher has started.

    The processes that were started have ended when the context exits, however the body ends.

    Args:
        trainer: the trainer of this process.
        run: the run.
        group: the processes that a launcher has started, a `gyral.training.ddp.group.Group`, if it has.

    Raises:
        ProcessError: another process failed.
    """
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if not isinstance(environment, ClusterEnvironment):
        yield
        return
    peers: list[PeerProcess] = []
    body_ended = threading.Event()
    with _restored_process(), group.reporting() if group else nullcontext(), tempfile.TemporaryDirectory() as scratch:
        if run.config.threads is None:
            torch.set_num_threads(environment.threads(trainer.num_devices))
        try:
            with _blocked_signals():  # they would end this process between a start and the record of it
                for rank in range(1, trainer.num_devices):
                    name = f"process {trainer.global_rank + rank}"
                    peers.append(PeerProcess(name, run, environment.for_peer(rank), scratch))
            for peer in peers:
                threading.Thread(target=_watch, args=(peer, body_ended, run.directory), daemon=True).start()
            for peer in peers:
                peer.expect(READY)
            if group:
                group.start()
            yield
            for peer in peers:
                peer.expect(FINISHED, FINISH)
        except ProcessError:
            raise
        except RuntimeError as error:  # torch raises it when another process has ended
            failure = _first_failure(peers)
            if failure is None:
                raise
            raise ProcessError(failure) from error
        finally:
            body_ended.set()
            with _blocked_signals():
                for peer in peers:
                    peer.end()


@contextmanager
def _restored_process() -> Iterator[None]:
    """Restore the number of threads, and end the process group."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
        torch.set_num_threads(threads)


class PeerProcess:
    """Another process of this node.

    It is not forked, because torch's and the loggers' threads do not survive a fork. It is not started by
    multiprocessing, which handles signals during the start and cannot start a process from a worker of joblib.
    """

    def __init__(self, name: str, run: Run, environment: ClusterEnvironment, scratch: str) -> None:
        self.name = name
        self.connection, remote = Pipe(duplex=False)
        # -P: without the current directory, which may be somebody else's; all modules come from where they do here
        command = [sys.executable, "-P", "-c", START, str(remote.fileno()), *filter(None, sys.path)]
        with _blocked_signals():  # they stay blocked in the new process until it can handle them
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[remote.fileno()])
        remote.close()
        assert self.process.stdin is not None
        content = (own_modules.words(), run, environment, scratch, torch.get_num_threads(), STOPPED)
        pickle.dump(content, self.process.stdin)
        self.process.stdin.flush()  # left open: at its end the peer knows that this process has ended

    def expect(self, message: str, seconds: float | None = None) -> None:
        """Wait for a message.

        Raises:
            ProcessError: the peer sends another message, ends, or sends none in time.
        """
        if not self.connection.poll(seconds):
            raise ProcessError(f"{self.name} did not end")
        _, received = self.receive()
        if received != message:
            raise ProcessError(received)

    def receive(self) -> tuple[float, str]:
        """Return the time and the text of the next message; if the peer has ended, 0 and its exit status."""
        try:
            time, message = self.connection.recv()
            return time, message if message in (READY, FINISHED) else f"{self.name}: {message}"
        except EOFError:
            return 0.0, f"{self.name} ended with exit status {self.process.wait()}"

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.connection.close()


def _first_failure(peers: list[PeerProcess]) -> str | None:
    """Return the message of the peer that failed first, or None if none failed."""
    ready = wait([peer.connection for peer in peers], MESSAGE)
    messages = [peer.receive() for peer in peers if peer.connection in ready]
    return min((message for message in messages if message[1] not in (READY, FINISHED)), default=(0.0, None))[1]


def _watch(peer: PeerProcess, body_ended: threading.Event, directory: Path) -> None:
    """End this process when a peer has ended early or is stopped: it would wait for the peer for many minutes."""
    clock = StoppedClock(peer.process.pid)
    while peer.process.poll() is None:
        if clock.tick() >= STOPPED:
            peer.process.kill()
            end_process(directory, f"{peer.name} was stopped by a signal and did not continue in {STOPPED:g} seconds")
        if body_ended.wait(TICK):
            return
    if not body_ended.wait(GRACE):
        end_process(directory, str(_first_failure([peer])))


def end_process(directory: Path | None, failure: str) -> NoReturn:
    """End this process, and write a failure to the run directory, if given."""
    if directory is not None:
        (directory / FAILED).write_text(f"{failure}\n", encoding="utf-8", errors="backslashreplace")
    print(f"error: {failure.splitlines()[0]}", file=sys.stderr, flush=True)
    os._exit(1)


class StoppedClock:
    """Counts for how many seconds in a row another process has been stopped, as by SIGSTOP or Ctrl-Z.

    Only seconds in which this process runs are counted: Ctrl-Z stops all processes of a run, `fg` continues them, and
    none is ended. Where there is no /proc, as on macOS, no process counts as stopped.

    Args:
        process: number of the process.
    """

    def __init__(self, process: int) -> None:
        self._file = Path(f"/proc/{process}/stat")
        self._seconds = 0.0

    def tick(self) -> float:
        """Return the seconds, if this is called every `TICK` seconds."""
        try:
            state = self._file.read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except OSError:  # it has ended
            state = ""
        self._seconds = self._seconds + TICK if state == "T" else 0.0
        return self._seconds


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM in this thread; a process that is started in this context has them blocked forever."""
    former = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
