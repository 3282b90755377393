"""Functions of the benchmark in other processes: a GPU is unusable to a process after some errors."""

import importlib
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, Self

REPORT = 12  # last lines of a traceback that are kept
GRACE = 10.0  # seconds after the deadline, at which a request that runs is stopped

Answer = dict[str, Any]


class Request(NamedTuple):
    """A call.

    Attributes:
        function: module.function, which returns a dictionary.
        arguments: Its arguments.
        seconds: It is stopped after this time.
    """

    function: str
    arguments: tuple[Any, ...]
    seconds: float


class Worker:
    """A process that answers one request after another."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.index, self.limit, self.deadline = -1, 0.0, 0.0

    def begin(self, index: int, request: Request, latest: float) -> None:
        """Send a request, which may run until it has taken too long, or until the latest time."""
        now = time.monotonic()
        self.index, self.limit = index, min(request.seconds, latest - now)
        self.deadline = now + self.limit
        with suppress(OSError):  # the process has ended, which `result` reports
            self.connection.send((request.function, request.arguments))

    def result(self) -> Answer | None:
        """Return the answer, or a `failure` and its `traceback`, or None as long as there is neither."""
        try:
            if self.connection.poll():
                found: Answer = self.connection.recv()
                return found
        except (EOFError, OSError):
            self.process.join()
            return {"failure": f"its process ended with exit code {self.process.exitcode}", "is_lost": True}
        if time.monotonic() > self.deadline:
            return {"failure": f"it took longer than {self.limit:.0f} s", "is_late": True, "is_lost": True}
        return None

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()


def serve(connection: Connection) -> None:
    """Answer requests until the other side is gone."""
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        try:
            module, _, name = function.rpartition(".")
            answer = getattr(importlib.import_module(module), name)(*arguments)
        except Exception as error:  # of torch, Triton and the driver
            lines = str(error).strip().splitlines() or ["no message"]
            report = "".join(traceback.format_exception(error)).splitlines()[-REPORT:]
            answer = {"failure": f"{type(error).__name__}: {lines[0]}", "traceback": report, "is_lost": True}
            if isinstance(error, ArithmeticError):  # a comparison that failed leaves the GPU usable
                answer["is_lost"] = False
        connection.send(answer)


class Pool:
    """Processes that answer requests, and wait for others when they have answered. They end with the context."""

    def __init__(self) -> None:
        self.idle: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that wait. Other requests start new ones."""
        while self.idle:
            self.idle.pop().stop()

    def answers(
        self, requests: Sequence[Request], processes: int, deadline: float
    ) -> Iterator[tuple[int, Answer | None]]:
        """Yield the index of each request and its answer, as they come; None for one that did not begin in time.

        A failure is an answer with `failure`: an error in one line, with the last lines of the `traceback`, or with
        `is_late` if it took too long. The requests after it run in a new process, unless it is an `ArithmeticError`.
        """
        waiting = list(enumerate(requests))[::-1]
        while len(self.idle) < min(processes, len(waiting)):
            self.idle.append(Worker())
        busy: list[Worker] = []
        try:
            while waiting or busy:
                while waiting and len(busy) < processes:
                    index, request = waiting.pop()
                    if time.monotonic() > deadline:
                        yield index, None
                        continue
                    busy.append(self.idle.pop() if self.idle else Worker())
                    busy[-1].begin(index, request, deadline + GRACE)
                wait([worker.connection for worker in busy], timeout=0.2)
                for worker in list(busy):
                    answer = worker.result()
                    if answer is not None:
                        busy.remove(worker)
                        if answer.pop("is_lost", False):
                            worker.stop()
                        else:
                            self.idle.append(worker)
                        yield worker.index, answer
        finally:
            for worker in busy:
                worker.stop()
