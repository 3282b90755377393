"""Parallel execution in several processes."""

import itertools
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(
    function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]], processes: int | None = None
) -> Iterator[Result]:
    """Yield the results of a function for each tuple of arguments, in their order.

    Arguments are consumed lazily: at most two calls per process are pending. A single call runs in this process. The
    worker processes are spawned, so that they inherit neither threads nor memory; they import the function's module.

    Args:
        function: a function at the top level of a module.
        arguments: positional arguments of each call.
        processes: number of worker processes; None: one for each available core. With 1, all calls run in this process.
    """
    arguments = iter(arguments)
    processes = available_cores() if processes is None else processes
    first = list(itertools.islice(arguments, 2))
    if processes == 1 or len(first) < 2:
        yield from itertools.starmap(function, itertools.chain(first, arguments))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _ignore_interrupt) as pool:
        pending: deque[Future[Result]] = deque()
        try:
            for call in itertools.chain(first, arguments):
                if len(pending) == 2 * processes:
                    yield pending.popleft().result()
                pending.append(pool.submit(function, *call))
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _ignore_interrupt() -> None:
    """Ignore Ctrl-C, which the terminal sends to all processes: the parent process handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
