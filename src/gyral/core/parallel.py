"""Parallel execution in several processes."""

import itertools
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(
    function: Callable[..., Result], arguments: Iterable[tuple[Any, ...]], processes: int | None = None
) -> Iterator[Result]:
    """Yield the results of a function for each tuple of arguments, in their order.

    Arguments are consumed lazily, by another thread: at most two calls per process are pending. Results that nobody
    has taken yet are kept. A single call runs in this process. An error ends the iteration as soon as it occurs.

    Args:
        function: a function at the top level of a module.
        arguments: positional arguments of each call.
        processes: number of worker processes; None: one for each available core. With 1, all calls run in this process.
    """
    arguments = iter(arguments)
    processes = available_cores() if processes is None else processes
    first = list(itertools.islice(arguments, 2))
    calls = itertools.chain(first, arguments)
    if processes == 1 or len(first) < 2:
        yield from itertools.starmap(function, calls)
        return
    from joblib import Parallel, delayed  # the library of layers does without it
    from joblib.externals.loky import get_reusable_executor

    # Submit calls one by one and copy arrays: joblib would collect short calls and write large arrays to files.
    options = {"batch_size": 1, "pre_dispatch": "2*n_jobs", "max_nbytes": None, "initializer": _ignore_interrupt}
    try:
        yield from Parallel(processes, "loky", "generator", **options)(delayed(function)(*call) for call in calls)
    finally:
        get_reusable_executor().shutdown()  # or idle processes would keep their memory for five minutes


def _ignore_interrupt() -> None:
    """Ignore Ctrl-C, which the terminal sends to all processes: the parent process handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
