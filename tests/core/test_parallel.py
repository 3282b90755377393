"""Work spread over processes: the order of results, errors, and how many jobs are in memory."""

import itertools
import math
import os
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path

import pytest

from gyral.core.parallel import available_cores, parallel_map


def work(folder: Path, number: int) -> tuple[int, int]:
    """Take some time, the first job the most, and leave a file; return the number and the process."""
    time.sleep(0.1 if number == 0 else 0.01)
    (folder / str(number)).touch()
    return number, os.getpid()


def test_one_process_does_all_jobs_here() -> None:
    assert list(parallel_map(math.pow, ((number, 2) for number in range(20)), 1)) == [n**2 for n in range(20)]


def test_no_job_gives_nothing_and_one_job_is_done_here() -> None:
    assert list(parallel_map(os.getpid, [])) == []
    assert list(parallel_map(os.getpid, [()])) == [os.getpid()]
    assert available_cores() >= 1


def test_several_processes_give_results_in_order_and_take_few_jobs_at_once(tmp_path: Path) -> None:
    pending = []

    def jobs() -> Iterator[tuple[Path, int]]:
        for number in range(40):
            pending.append(number - len(list(tmp_path.iterdir())))
            yield tmp_path, number

    numbers, processes = zip(*parallel_map(work, jobs(), 2), strict=True)
    assert numbers == tuple(range(40))
    assert len(pending) == 40
    assert max(pending) <= 4, "2 calls per process are pending"
    assert os.getpid() not in processes


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_a_call_ends_the_iteration(processes: int) -> None:
    numbers = iter((4, 9, -1, *itertools.repeat(1, 500)))
    with pytest.raises(ValueError, match=r"nonnegative|math domain"):
        list(parallel_map(math.sqrt, ((number,) for number in numbers), processes))
    assert len(list(numbers)) > 400, "further calls were started"


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])  # as that of a call
def test_an_error_of_the_arguments_ends_the_iteration(processes: int) -> None:
    def numbers() -> Iterator[tuple[float]]:
        yield from ((4,), (9,), (16,), (25,), (36,), (49,), (64,))
        raise OSError("unreadable")

    with pytest.raises(OSError, match="unreadable"):
        list(parallel_map(math.sqrt, numbers(), processes))


def test_a_process_that_dies_is_an_error() -> None:
    with pytest.raises(BrokenExecutor):
        list(parallel_map(os._exit, ((1,) for _ in range(8)), 2))
