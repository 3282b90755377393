"""Runs that log to a stand-in of Weights & Biases, which fails at the start, in the middle or at the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gyral.runs.metrics_file import read_rows
from tests.helpers.engines import wait_until
from tests.helpers.engines.wandb_server import StoredRun, WandbServer, wandb_server
from tests.helpers.running import ROOT, SMALL_COPY

OPTIONS = tuple(option for option in SMALL_COPY if not option.startswith(("logger=", "trainer.max", "trainer.val")))
STEPS = 1500  # a few seconds
RUN = (*OPTIONS, "model=rum", "logger=wandb", f"trainer.max_steps={STEPS}", "trainer.val_check_interval=200")
RUN = (*RUN, "trainer.log_every_n_steps=20")
LIMIT = 90.0  # seconds after the end of training


@pytest.fixture
def server() -> Iterator[WandbServer]:
    with wandb_server() as running:
        yield running


class Program(subprocess.Popen[str]):
    """`gyral train` in a process of its own."""

    def __init__(self, server: WandbServer, *arguments: str, **environment: str) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        super().__init__(
            [sys.executable, "-m", "src.train", *arguments],
            cwd=ROOT,
            env={**variables, "OMP_NUM_THREADS": "1", **server.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_core(self) -> None:
        """Kill wandb-core, once it is there."""
        wait_until(lambda: children(self.pid, "wandb-core"), what="wandb-core starts")
        for child in children(self.pid, "wandb-core"):
            os.kill(child, signal.SIGKILL)


def children(parent: int, name: str) -> list[int]:
    """Return the ids of the child processes of this name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            before, _, after = path.read_text().rpartition(")")
            if before.partition("(")[2] == name and int(after.split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def fail(server: WandbServer, program: Program, failure: str) -> None:
    if failure == "no server":
        server.refuse()
    elif failure == "killed wandb-core":
        program.kill_core()
    else:
        server.answer = failure if failure == "hang" else int(failure)


def steps_logged(directory: Path) -> list[int]:
    path = directory / "metrics.csv"
    return [int(row["step"]) for row in read_rows(path)[1]] if path.is_file() else []


def assert_whole(directory: Path) -> None:
    """Check that metrics.csv has the losses of every logged step, each once."""
    rows = read_rows(directory / "metrics.csv")[1]
    assert [int(row["step"]) for row in rows if row["train/loss"]] == list(range(19, STEPS, 20))
    assert [int(row["step"]) for row in rows if row["val/loss"]] == list(range(199, STEPS, 200))
    assert [int(row["step"]) for row in rows if row["test/loss"]] == [STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["start", "middle", "end"])
@pytest.mark.parametrize("failure", ["no server", "401", "500", "hang", "killed wandb-core"])
def test_training_goes_on_and_one_line_says_what_happened(
    failure: str, moment: str, server: WandbServer, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    if moment == "start" and failure != "killed wandb-core":
        fail(server, None, failure)
    program = Program(server, *RUN, f"hydra.run.dir={directory}")
    if moment == "start" and failure == "killed wandb-core":
        fail(server, program, failure)
    if moment == "middle":
        wait_until(lambda: len(steps_logged(directory)) > 60, what="training")
        fail(server, program, failure)
    wait_until(lambda: (directory / "DONE").exists() or program.poll() is not None, 200, "DONE")
    ended = time.monotonic()
    if moment == "end":
        fail(server, program, failure)
    _, printed = program.communicate(timeout=LIMIT)
    print(f"{failure} {moment}: {time.monotonic() - ended:.1f} s after DONE")
    print(printed)
    assert program.returncode == 0, printed
    assert_whole(directory)
    link = f"Weights & Biases: {server.url}/"
    lines = [line for line in printed.splitlines() if not line.startswith(("RUMCell runs", link))]
    assert len(lines) == 1, printed
    assert "wandb sync " in lines[0]
    assert "Traceback" not in printed
