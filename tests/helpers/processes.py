"""The processes that a run of several processes has started."""

import time
from pathlib import Path


def children(process: int | str = "self") -> set[str]:
    """Return the numbers of a process's children; one that other tests leave is multiprocessing's tracker."""
    tasks = Path(f"/proc/{process}/task")
    return {child for thread in tasks.glob("*/children") for child in thread.read_text().split()}


def other_processes(first: int | str = "self") -> list[int]:
    """Return the numbers of the processes that a run's first process has started."""
    return [int(child) for child in children(first) if b"worker.main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def wait_for_end(process: int, seconds: float = 10) -> None:
    """Check that a process ends within some seconds."""
    until = time.monotonic() + seconds
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < until, "it still runs"
        time.sleep(0.05)
