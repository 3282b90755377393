"""Runs that log to a stand-in of Weights & Biases, which fails at the start, in the middle or at the end."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from gyral.runs.metrics_file import read_rows
from tests.helpers.engines import wait_until
from tests.helpers.engines.wandb_server import StoredRun, WandbServer, wandb_server
from tests.helpers.running import ROOT, SMALL_COPY

STEPS = 1500  # a few seconds
OPTIONS = tuple(option for option in SMALL_COPY if not option.startswith(("logger=", "trainer.", "callbacks.")))
RUN = (
    *OPTIONS,
    "model=rum",
    "logger=wandb",
    "trainer.accelerator=cpu",
    f"trainer.max_steps={STEPS}",
    "trainer.val_check_interval=200",
    "trainer.log_every_n_steps=20",
    "callbacks.checkpoints.every=50",
)
LIMIT = 90.0  # seconds after the end of training
FAILURES = ("no server", "401", "500", "hang", "killed wandb-core")
# metrics that differ between two trainings of the same steps
MEASURED = (
    *("train/seconds_a_step", "train/tokens_a_second", "train/peak_memory_mb"),
    *("train/share_outside_step", "train/share_outside_recurrence"),
)
MOMENTS = ("start", "middle", "end")
BLOCK = 32768  # bytes that wandb-core writes to a run's file at once
QUICK = (("killed wandb-core", "middle"),)


@pytest.fixture
def server() -> Iterator[WandbServer]:
    with wandb_server() as running:
        yield running


class Program(subprocess.Popen[str]):
    """`gyral train`, or another program, in a process of its own."""

    def __init__(self, server: WandbServer, *arguments: str | Path, **environment: str) -> None:
        variables = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        # the server gets the metrics of each second at once, and not after 15 seconds
        variables |= {"OMP_NUM_THREADS": "1", "WANDB__FILE_STREAM_TRANSMIT_INTERVAL": "1"}
        super().__init__(
            [sys.executable, "-m", *map(str, arguments)],
            cwd=ROOT,
            env={**variables, **server.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill_core(self) -> None:
        """Kill the process wandb-core, once it has started."""
        wait_until(lambda: children(self.pid, "wandb-core"), what="wandb-core starts")
        for child in children(self.pid, "wandb-core"):
            os.kill(child, signal.SIGKILL)

    def printed(self, seconds: float = LIMIT) -> str:
        """Return what the program has printed to standard error, after it has ended."""
        return self.communicate(timeout=seconds)[1]


def train(server: WandbServer, directory: Path, *options: str, **environment: str) -> Program:
    return Program(server, "src.train", *RUN, *options, f"hydra.run.dir={directory}", **environment)


def children(parent: int, name: str) -> list[int]:
    """Return the ids of the child processes of this name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            before, _, after = path.read_text().rpartition(")")
            if before.partition("(")[2] == name and int(after.split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def fail(server: WandbServer, failure: str) -> None:
    if failure == "no server":
        server.refuse()
    elif failure != "killed wandb-core":
        server.answer = failure if failure == "hang" else int(failure)


def rows_of(directory: Path) -> list[dict[str, str]]:
    path = directory / "metrics.csv"
    return read_rows(path)[1] if path.is_file() else []


def bytes_logged(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("wandb/run-*/*.wandb"))


def only_run(server: WandbServer) -> StoredRun:
    (run,) = server.runs.values()
    return run


def wait_for_history(server: WandbServer, rows: int = 30) -> None:
    wait_until(lambda: server.runs and len(only_run(server).history) >= rows, 120, "the server has some metrics")


def assert_whole(directory: Path) -> None:
    """Check that metrics.csv has the losses of every logged step, each once."""
    rows = rows_of(directory)
    assert [int(row["step"]) for row in rows if row["train/loss"]] == list(range(19, STEPS, 20))
    assert [int(row["step"]) for row in rows if row["val/loss"]] == [*range(199, STEPS, 200), STEPS - 1]
    assert [int(row["step"]) for row in rows if row["test/loss"]] == [STEPS]


def assert_uploaded(run: StoredRun, directory: Path) -> None:
    """Check that the history of a run is metrics.csv, each row once and in its order, and one line for each step.

    `wandb sync` uploads rows again that the server already has, and W&B knows them by their number `_step`. The steps
    that a resumed run repeats take other times.
    """
    every = {row["_step"]: row for row in run.history}
    history = [row for row in every.values() if "loss" not in row]  # the picture at the end
    rows = rows_of(directory)
    ends = [line["rows"] for line in history]
    assert ends[-1] == len(rows)
    for logged, start, end in zip(history, [0, *ends], ends, strict=False):
        assert len({row["step"] for row in rows[start:end]}) == 1
        for name, value in [item for row in rows[start:end] for item in row.items()]:
            if value and name not in ("step", *MEASURED):
                assert logged[name] == pytest.approx(float(value)), name
    assert list(every) == list(range(len(every)))


@pytest.mark.parametrize(
    ("failure", "moment"),
    [
        pytest.param(failure, moment, marks=() if (failure, moment) in QUICK else pytest.mark.slow)
        for failure in FAILURES
        for moment in MOMENTS
    ],
)
def test_training_continues_and_one_line_says_what_happened(
    failure: str, moment: str, server: WandbServer, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    if moment == "start":
        fail(server, failure)
    program = train(server, directory)
    if moment == "middle":
        wait_until(lambda: len(rows_of(directory)) > 60, 120, "training")
        if failure == "killed wandb-core":  # what it has not yet written is in metrics.csv alone
            wait_until(lambda: bytes_logged(directory) >= BLOCK, 120, "wandb-core has written its first block")
        fail(server, failure)
    if failure == "killed wandb-core" and moment != "end":
        program.kill_core()
    wait_until(lambda: (directory / "DONE").exists() or program.poll() is not None, 300, "DONE")
    ended = time.monotonic()
    if moment == "end":
        fail(server, failure)
        if failure == "killed wandb-core":
            program.kill_core()
    printed = program.printed(LIMIT)
    print(f"{failure}, {moment}: {time.monotonic() - ended:.1f} s after DONE\n{printed}")
    assert program.returncode == 0
    assert_whole(directory)
    link = f"Weights & Biases: {server.url}/"
    usual = (" parameters on cpu; ", "; this takes some seconds", link)  # the second compiles kernels
    lines = [line for line in printed.splitlines() if not any(part in line for part in usual)]
    assert len(lines) == 1, printed
    command = re.search(r"(wandb sync .*)$", lines[0])
    if command is None:  # wandb-core was killed before it had a file
        assert lines[0].endswith("; this run is logged to metrics.csv alone")
        return
    server.answer = "ok"
    if failure == "no server":
        server.accept()
    sync = Program(server, *shlex.split(command[1]), WANDB_DIR=str(tmp_path))
    printed = sync.printed()
    assert only_run(server).history[0]["steps"] == 20, printed
    if failure != "killed wandb-core" or moment == "start":
        assert_uploaded(only_run(server), directory)


def test_a_resumed_run_uploads_what_a_killed_one_has_not(server: WandbServer, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    program = train(server, directory)
    wait_for_history(server)
    program.kill_core()
    program.kill()
    program.communicate()
    received = len(only_run(server).history)
    program = train(server, directory)
    printed = program.printed(120)
    assert program.returncode == 0, printed
    assert received < len(only_run(server).history)
    assert_whole(directory)
    assert_uploaded(only_run(server), directory)
    run = only_run(server)
    assert (run.exit_code, run.overwritten) == (0, 0)
    assert len({row["_step"] for row in run.history}) == len(run.history)


def test_a_stopped_run_is_no_failed_one_and_its_link_is_printed(server: WandbServer, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    program = train(server, directory)
    wait_for_history(server)
    program.send_signal(signal.SIGINT)
    printed = program.printed()
    assert program.returncode == 130, printed
    run = only_run(server)
    assert run.exit_code == 255
    assert f"Weights & Biases: {server.url}/somebody/gyral/runs/{next(iter(server.runs))}" in printed.splitlines()


@pytest.mark.slow
def test_a_run_that_fails_is_a_failed_one(server: WandbServer, tmp_path: Path) -> None:
    program = train(server, tmp_path / "run", "optimizer.lr=1e30")
    printed = program.printed(120)
    assert program.returncode == 1, printed
    assert only_run(server).exit_code == 1


@pytest.mark.slow
def test_a_stopped_run_does_not_wait_for_a_server_that_hangs(server: WandbServer, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    program = train(server, directory)
    wait_for_history(server)
    server.answer = "hang"
    program.send_signal(signal.SIGTERM)
    started = time.monotonic()
    printed = program.printed()
    assert time.monotonic() - started < 30
    assert (program.returncode, "To resume: " in printed) == (130, True)


@pytest.mark.slow
def test_each_job_of_a_process_has_its_own_run(server: WandbServer, tmp_path: Path) -> None:
    """Also after a job whose wandb-core was killed."""
    program = Program(server, "src.train", "-m", *RUN, "seed=1,2,3", f"hydra.sweep.dir={tmp_path}")
    wait_for_history(server)
    program.kill_core()
    printed = program.printed(240)
    assert program.returncode == 0, printed
    assert [run.exit_code for run in server.runs.values()] == [None, 0, 0]
    # wandb-core may have been killed before it has sent the configuration of the first run
    assert [run.config["seed"] for run in list(server.runs.values())[1:]] == [2, 3]


@pytest.mark.slow
def test_ctrl_c_ends_an_upload_and_the_run_is_done(server: WandbServer, tmp_path: Path) -> None:
    directory = tmp_path / "run"
    program = train(server, directory)
    wait_for_history(server)
    server.answer = "hang"
    wait_until((directory / "DONE").exists, 120)
    time.sleep(5)  # the plot of the losses
    program.send_signal(signal.SIGINT)
    printed = program.printed(20)
    assert "interrupted before everything was uploaded" in printed
    assert "To resume" not in printed


@pytest.mark.slow
def test_the_runs_of_an_agent_have_the_names_of_model_and_task(server: WandbServer, tmp_path: Path) -> None:
    options = ("task=copy", "model=rum", "trainer.max_steps=20", "trainer.val_check_interval=10", "task.train_size=64")
    command = [sys.executable, "-m", "src.sweep", "tune", *options]
    definition = yaml.safe_load(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    words = [word for word in definition["command"] if not word.startswith("hydra.run.dir=")]
    definition["command"] = [*words, f"hydra.run.dir={tmp_path}/run"]  # not in the repository
    (tmp_path / "sweep.yaml").write_text(yaml.dump(definition))
    Program(server, "wandb", "sweep", tmp_path / "sweep.yaml", WANDB_DIR=str(tmp_path)).printed()
    chosen: dict[str, Any] = dict(option.split("=") for option in options)
    chosen |= {"model.cell.hidden_size": 32, "optimizer.lr": 0.00123}
    arguments = {name: {"value": value} for name, value in chosen.items()}
    server.commands = [{"type": "run", "run_id": "abc123", "program": definition["program"], "args": arguments}]
    environment = {"WANDB_DIR": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    printed = Program(server, "wandb", "agent", "somebody/gyral/sweep1", "--count", "1", **environment).printed(180)
    run = server.runs["abc123"]
    assert run.exit_code == 0, printed
    assert run.fields["displayName"] == "RUM · copy · seed 1 · train size = 64, learning rate = 0.00123"
    assert (run.fields["groupName"], run.fields["jobType"], run.fields["sweep"]) == ("tune_copy", "copy", "sweep1")
    assert (run.config["model_name"], run.config["task_name"], run.config["cell_name"]) == ("RUM", "copy", "RUM")
    assert run.config["model"] == "rum"  # by which W&B chooses the next run
    assert run.config["run"]["config"]["model"]["cell"]["hidden_size"] == 32
    assert run.config["optimizer.lr"] == 0.00123
