"""A plugin of pytest: records which lines of gyral each test executes, and its CPU time, in the folder $RECORDED."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

FOLDER = Path(os.environ["RECORDED"])
WORKER = os.environ.get("PYTEST_XDIST_WORKER")  # the process that hands out the tests executes none
COVERAGE = coverage.Coverage(
    data_file=FOLDER / f"{WORKER}.db", source=[str(Path("src/gyral").resolve())], config_file=False
)
if WORKER is not None:
    COVERAGE.start()


def cpu_time() -> float:
    """Return the CPU seconds of this process and of the processes that it has started and that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if WORKER is None:
        return (yield)
    before = cpu_time()
    COVERAGE.switch_context(item.nodeid)
    outcome = yield
    COVERAGE.switch_context("")
    with (FOLDER / f"{WORKER}.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps([item.nodeid, round(cpu_time() - before, 4)]) + "\n")
    return outcome


def pytest_sessionfinish() -> None:
    if WORKER is not None:
        COVERAGE.stop()
        COVERAGE.save()
