"""Work spread over processes."""

import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(
    function: Callable[..., Result], jobs: Iterable[tuple[Any, ...]], processes: int | None = None
) -> Iterator[Result]:
    """Yield what a function returns for each job, in their order, computed by several processes.

    Jobs are taken as they are needed: at most two a process are in memory. A single job is done by this process. The
    processes are new ones, so that they inherit neither threads nor memory; they import the function's module.

    Args:
        function: of a module's top level.
        jobs: the function's arguments.
        processes: None: as many as cores. With 1 this process does it all.
    """
    jobs = iter(jobs)
    processes = cores() if processes is None else processes
    first = list(itertools.islice(jobs, 2))
    if processes == 1 or len(first) < 2:
        yield from itertools.starmap(function, itertools.chain(first, jobs))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _ignore_interrupt) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for job in itertools.chain(first, jobs):
                if len(pending) == 2 * processes:
                    yield pending.popleft().result()
                pending.append(pool.submit(function, *job))
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _ignore_interrupt() -> None:
    """Leave Ctrl-C, which the terminal sends to every process, to the one that waits for the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
