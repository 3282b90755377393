"""Work spread over processes: the order of results, errors, and how many jobs are in memory."""

import itertools
import math
import os
import time
from collections.abc import Iterator

import pytest

from gyral.core.parallel import available_cores, parallel_map


def who(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_jobs(processes: int) -> None:
    assert list(parallel_map(math.pow, ((number, 2) for number in range(20)), processes)) == [n**2 for n in range(20)]


def test_no_job_gives_nothing_and_one_job_is_done_here() -> None:
    assert list(parallel_map(os.getpid, [])) == []
    assert list(parallel_map(os.getpid, [()])) == [os.getpid()]
    assert available_cores() >= 1


def test_several_processes_work_and_take_few_jobs_at_once() -> None:
    taken = 0

    def jobs() -> Iterator[tuple[float]]:
        nonlocal taken
        while taken < 40:
            taken += 1
            yield (0.01,)

    found = set()
    for done, process in enumerate(parallel_map(who, jobs(), 2)):
        assert taken <= done + 5
        found.add(process)
    assert taken == 40
    assert os.getpid() not in found


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_reaches_who_asked(processes: int) -> None:
    results = parallel_map(math.sqrt, ((number,) for number in (4, 9, -1, *itertools.repeat(1, 50))), processes)
    assert [next(results), next(results)] == [2, 3]
    with pytest.raises(ValueError, match=r"nonnegative|math domain"):
        next(results)
