"""Signals to the processes of a run of two: all hear of them and stop after the same step, and none waits for ever."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gyral import train
from gyral.training.ddp import peers
from tests.faults.forks import Ended, fork
from tests.faults.small_runs import SMALL_RUNS
from tests.faults.test_kills import check_end
from tests.helpers.attacks import Attack
from tests.helpers.processes import other_processes, wait_for_end
from tests.helpers.running import ROOT, assert_same_run

TWO = ("trainer=ddp", "trainer.devices=2", "trainer.max_steps=24")
LIMIT = 300.0  # seconds; a run takes about 6, on a machine with nothing else to do
STOPPED = 3.0


def run(directory: Path, meanwhile: Callable[[int], None] | None = None) -> Ended:
    def call() -> None:
        peers.STOPPED = STOPPED
        sys.argv = ["src/train.py", *SMALL_RUNS["copy"](directory.parent, None), *TWO, f"hydra.run.dir={directory}"]
        train.main()

    return fork(call, ROOT, LIMIT, meanwhile)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Return a run that nothing happened to, and the seconds from the start of its second process to its end."""
    directory = tmp_path_factory.mktemp("ddp") / "whole"
    started: list[float] = []
    ended = run(directory, lambda first: started.extend([wait_for_second(first) and time.monotonic()]))
    assert ended.status == 0, ended.err
    return directory, time.monotonic() - started[0]


def wait_for_second(first: int) -> int:
    """Return the number of the second process as soon as it runs."""
    until = time.monotonic() + LIMIT
    while not (others := other_processes(first)):
        assert time.monotonic() < until
        time.sleep(0.01)
    return others[0]


@pytest.mark.attacks(sampled=0, whole=12)
def test_a_signal_to_any_process_stops_all(attack: Attack, whole: tuple[Path, float], tmp_path: Path) -> None:
    reference, seconds = whole
    number = attack.random.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGINT))
    to = attack.random.choice(((0,), (1,), (1,), (0, 1)))
    moment = attack.random.uniform(0, seconds)
    processes: list[int] = []

    def send(first: int) -> None:
        processes[:] = [first, wait_for_second(first)]
        time.sleep(moment)
        for rank in to:
            if rank == 0 or processes[1] in other_processes(first):
                os.kill(processes[rank], number)

    ended = run(tmp_path / "run", send)
    attack.record(f"{check_end(tmp_path / 'run', number, ended.status, ended.err)} to {to}")
    wait_for_end(processes[1])
    if ended.status:
        ended = run(tmp_path / "run")
        assert ended.status == 0, ended.err
    assert_same_run(reference, tmp_path / "run")
    attack.record("bit-equal")


@pytest.mark.attacks(sampled=0, whole=6)
def test_a_stopped_process_ends_the_run_in_time(attack: Attack, whole: tuple[Path, float], tmp_path: Path) -> None:
    reference, seconds = whole
    rank = attack.number % 2
    moment = attack.random.uniform(0, seconds)
    processes: list[int] = []

    def stop(first: int) -> None:
        processes[:] = [first, wait_for_second(first)]
        time.sleep(moment)
        if rank == 0 or processes[1] in other_processes(first):
            os.kill(processes[rank], signal.SIGSTOP)

    ended = run(tmp_path / "run", stop)
    wait_for_end(processes[1])
    if ended.status == 0:
        attack.record("ended before the signal")
    else:
        reason = f"process {rank} was stopped by a signal and did not continue in {STOPPED:g} seconds"
        assert ended.status == (-signal.SIGKILL if rank == 0 else 1), ended.err
        assert reason in (tmp_path / "run" / "FAILED").read_text()
        attack.record(f"ended when process {rank} was stopped")
        ended = run(tmp_path / "run")
        assert ended.status == 0, ended.err
    assert_same_run(reference, tmp_path / "run")
    attack.record("bit-equal")
