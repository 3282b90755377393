"""Runs that are killed at random moments, by SIGKILL, SIGTERM or SIGINT, end bit-equal to one that nothing happened to.

The runs are forks of this process, so that torch is imported once, and some are processes of their own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from gyral import generation, train  # noqa: F401  (imported once, not by each run)
from gyral.core.signals import SIGNALS
from gyral.figures import loss_curve
from gyral.training import build, loggers, loop  # noqa: F401
from tests.faults.forks import Ended, fork
from tests.faults.small_runs import SMALL_RUNS
from tests.helpers import killing
from tests.helpers.attacks import Attack
from tests.helpers.composing import each_once
from tests.helpers.running import MEASURED, ROOT, assert_same_run

NUMBERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# Moments of a run after a number of steps, see tests/helpers/killing.py. The runs write last.ckpt every 3 steps, log
# every 2, validate every 8 and end after 24.
POINTS = (
    *[("before_step", step) for step in range(24)],
    *[("before_update", step) for step in range(24)],
    *[("in_validation", step) for step in (8, 16, 24)] * 4,
    *[(f"{when}_replace", step) for step in range(3, 25, 3) for when in ("before", "after")],
    *[("in_test", 24)] * 4,
)
FOLLOW_TRAINING = ("programs", "scenes")  # their batches depend on a curriculum, so that no thread draws them
LIMIT = 120.0  # seconds; a run takes one, on a machine with nothing else to do


class Whole(NamedTuple):
    """A run that nothing happened to.

    Attributes:
        directory: the run directory.
        options: the options of the command.
        seconds: how long it took.
    """

    directory: Path
    options: tuple[str, ...]
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Whole]]:
    """Return a task's run that nothing happened to, which is made once."""
    made: dict[str, Whole] = {}
    with pytest.MonkeyPatch.context() as patch:

        def make(task: str) -> Whole:
            if task not in made:
                folder = tmp_path_factory.mktemp(task)
                options = SMALL_RUNS[task](folder, patch)
                ended = run(*options, f"hydra.run.dir={folder}/whole")
                assert ended.status == 0, ended.err
                made[task] = Whole(folder / "whole", options, ended.seconds)
            return made[task]

        yield make


def run(*arguments: str, point: tuple[str, int] | None = None, number: int = 0, after: float | None = None) -> Ended:
    """Run `python -m src.train` in a fork, which gets a signal at a point of the run, or after some seconds."""

    def call() -> None:
        if number == 0:
            loss_curve.plot_losses = lambda _: None  # half of the time of a run
        if point is not None:
            killing.arm(*point, act=lambda: os.kill(os.getpid(), number))
        sys.argv = ["src/train.py", *arguments]
        try:
            with each_once():
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                train.main()
        except KeyboardInterrupt:  # before the first line of the program, or after its last
            sys.exit(130)

    def meanwhile(child: int) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if after is not None:
            time.sleep(after)
            os.kill(child, number)

    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until the fork can handle them
    return fork(call, ROOT, LIMIT, meanwhile)


def log_size(directory: Path) -> int:
    """Return the size of the log of a run, 0 without one."""
    log = directory / "train.log"
    return log.stat().st_size if log.exists() else 0


def check_end(directory: Path, number: int, status: int, printed: str, logged: int = 0) -> str:
    """Check what a run that got a signal has left, and return its outcome.

    Args:
        directory: the run directory.
        number: the signal.
        status: the exit status.
        printed: what the run wrote to standard error.
        logged: size of its log before.
    """
    is_done, has_begun = (directory / "DONE").exists(), log_size(directory) > logged
    assert status in (0, -number, 130), printed
    assert status != 0 or is_done, f"exit status 0, and the run is not done: {printed}"
    assert "Traceback" not in printed
    assert not (directory / "FAILED").exists()
    if status == -number and number != signal.SIGKILL:  # while the program starts or ends, it dies like any other
        assert is_done or not has_begun, printed
    if status == 130 and has_begun and not is_done:
        assert f"Stopped. To resume: python -m src.train resume={directory}" in printed, printed
    if "Stopping after this step" in printed and status == 130:
        assert (directory / "checkpoints" / "last.ckpt").exists()
    return "ended before the signal" if status == 0 else f"ended by {signal.Signals(number).name}"


def finish_and_compare(whole: Whole, directory: Path, arguments: list[str]) -> None:
    """Resume a run, and compare it with the one that nothing happened to."""
    ended = run(*arguments)
    assert ended.status == 0, ended.err
    assert "Traceback" not in ended.err
    assert_same_run(whole.directory, directory)
    results = [json.loads((place / "DONE").read_text()) for place in (whole.directory, directory)]
    for name in results[0]:
        if (name.startswith("test/") and name not in MEASURED) or name == "monitor":
            assert results[0][name] == results[1][name], name
    assert (directory / "examples.txt").read_text() == (whole.directory / "examples.txt").read_text()
    # A run without messages has no log, unless it was stopped. The last run draws no curve if it trains no step.
    optional = {"loss.png", "train.log"}
    names = [{path.name for path in place.rglob("*")} - optional for place in (directory, whole.directory)]
    assert names[0] == names[1]


@pytest.mark.attacks(sampled=1, whole=300)
def test_a_killed_run_ends_bit_equal(attack: Attack, whole: Callable[[str], Whole], tmp_path: Path) -> None:
    tasks = tuple(SMALL_RUNS)
    task = tasks[attack.number % len(tasks)]
    reference = whole(task)
    number = NUMBERS[attack.number % len(NUMBERS)]
    directory, random = tmp_path / "run", attack.random
    command = [*reference.options, f"hydra.run.dir={directory}"]
    if task not in FOLLOW_TRAINING and random.random() < 0.5:
        command.append(f"+task.prefetch={random.choice((1, 2, 5))}")  # the whole run has no thread
    latest = reference.seconds
    for _ in range(random.choice((1, 1, 1, 2))):
        while True:  # until the signal comes before the end
            point = random.choice(POINTS) if random.random() < 0.5 else None
            after = None if point else random.uniform(0, latest)
            logged = log_size(directory)
            ended = run(*arguments(directory, command, random), point=point, number=number, after=after)
            outcome = check_end(directory, number, ended.status, ended.err, logged)
            if ended.status != 0:
                break
            shutil.rmtree(directory)
            latest /= 2
        attack.record(outcome)
        attack.record("at a point of the run" if point else "at a moment in time")
    finish_and_compare(reference, directory, arguments(directory, command, random))
    attack.record("bit-equal")


def arguments(directory: Path, command: list[str], random: Random) -> list[str]:
    """Return a command that resumes a run: the same one or, if there is a run, the one that a stopped run prints."""
    is_run = (directory / "config.yaml").exists()
    return [f"resume={directory}"] if is_run and random.random() < 0.5 else command


@pytest.mark.attacks(sampled=0, whole=12)
def test_a_killed_process_ends_as_if_nothing_had_happened(
    attack: Attack, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    """The command in a process of its own, with W&B, offline."""
    reference = whole("copy")
    number = NUMBERS[attack.number % len(NUMBERS)]
    directory, printed = tmp_path / "run", tmp_path / "printed"
    command = [*SMALL_RUNS["copy"](tmp_path, None), "logger=wandb", f"hydra.run.dir={directory}"]
    started = time.monotonic()
    with printed.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "src.train", *command],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline"},
            stdout=file,
            stderr=file,
        )
        until = started + attack.random.uniform(3, 10)
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        process.send_signal(number)
        status = process.wait(LIMIT)
    attack.record(check_end(directory, number, status, printed.read_text()))
    shutil.rmtree(directory / "wandb", ignore_errors=True)
    finish_and_compare(reference, directory, [*SMALL_RUNS["copy"](tmp_path, None), f"hydra.run.dir={directory}"])
    attack.record("bit-equal")
