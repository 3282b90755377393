"""Several processes compute what one does, keep one record of it, fail and stop together, and leave nothing behind."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from pytorch_lightning import Callback
from torch import distributed

from gyral.core.collectives import local_rows
from gyral.data.batching import Batch
from gyral.tasks.base import SequenceTask
from gyral.training.ddp import peers
from gyral.training.ddp.strategy import DDP
from tests.helpers.engines import free_port
from tests.helpers.processes import children, other_processes, wait_for_end
from tests.helpers.running import (
    SMALL,
    SMALL_COPY,
    SMALL_RECALL,
    assert_same,
    assert_same_run,
    invoke,
    load_last,
    read_rows,
    spawn,
)

TWO = ("trainer=ddp", "trainer.devices=2")
# 17 examples: in the last batch of 8 there is one for two processes
COPY = (*SMALL_COPY, "model=rum", "task.val_size=17", "task.test_size=17")
RECALL = (*SMALL_RECALL, "model=gru", "optimizer=adam", "task.val_size=17", "task.test_size=17")
# 386 symbols of training: two rows of 193 and 192 predictions, of which the second has none in a pass's last window
TEXT = (
    *(option for option in SMALL if not option.startswith("task.")),
    "model=lstm",
    "optimizer=adam",
    "scheduler=cosine",
    "task=text_file",
    "task.corpus.val_fraction=0.1",
    "task.corpus.test_fraction=0.1",
    "task.batch_size=2",
    "task.window=32",
    "task.eval_batch_size=3",
    "task.warm_up=20",
)
MINUTES = 5


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing wait for ever, and look for what a job left behind."""

    def give_up(*_: Any) -> None:
        raise TimeoutError

    before = children()
    original = DDP.__init__
    monkeypatch.setattr(DDP, "__init__", lambda *_, **options: original(*_, **options, timeout=timedelta(minutes=1)))
    former = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60 * MINUTES)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
    assert children() == before
    assert not distributed.is_initialized()
    assert not {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"} & set(os.environ)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return the overrides of runs on a text of 482 symbols, with its cache in a folder of its own."""
    folder = tmp_path_factory.mktemp("text")
    words = ("the cat sat on the mat. a dog barks at it, and the cat runs away; " * 8)[:482]
    (folder / "text.txt").write_text(words)
    return (*TEXT, f"task.corpus.path={folder / 'text.txt'}", f"paths.data_dir={folder}")


def run(directory: Path, *arguments: str) -> Path:
    outcome = invoke(*arguments, f"hydra.run.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory


def assert_close(first: Path, second: Path) -> None:
    """Check that two runs took the same steps: losses and gradients, by the weights they lead to, and test figures."""
    rows, others = read_rows(first), read_rows(second)
    assert [{k for k, v in row.items() if v} for row in rows] == [{k for k, v in row.items() if v} for row in others]
    for row, other in zip(rows, others, strict=True):
        for name, value in row.items():
            if value:
                assert float(value) == pytest.approx(float(other[name]), rel=1e-5, abs=1e-9), (name, row["step"])
    left, right = load_last(first), load_last(second)
    assert left["global_step"] == right["global_step"]
    for name, weight in left["state_dict"].items():
        torch.testing.assert_close(weight, right["state_dict"][name], rtol=1e-5, atol=1e-6)
    for weight, other in zip(left.get("carried", []), right.get("carried", []), strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-4, atol=1e-5)
    results, expected = (json.loads((where / "DONE").read_text()) for where in (first, second))
    for name in results:
        if name.startswith("test/") or name == "monitor":
            assert results[name] == pytest.approx(expected[name], rel=1e-6), name


class Fails(Callback):
    """Ends one of the processes at a step, by an exception or at once."""

    def __init__(self, rank: int, step: int, how: str) -> None:
        self.rank, self.step, self.how = rank, step, how

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step != self.step:
            return
        if trainer.global_rank == self.rank:
            if self.how == "raises":
                raise LookupError("a test wants it so")
            os._exit(9)
        elif self.how == "leaves the other waiting":
            time.sleep(60)


def fails(rank: int, step: int | str, how: str) -> list[str]:
    options = {"_target_": f"{__name__}.Fails", "rank": rank, "step": step, "how": f"'{how}'"}
    return [f"+callbacks.fails.{name}={value}" for name, value in options.items()]


def seconds_to_fail(directory: Path) -> float:
    """Return the time from the last checkpoint, the step before the failure, to the marker."""
    checkpoint, marker = directory / "checkpoints" / "last.ckpt", directory / "FAILED"
    return marker.stat().st_mtime - checkpoint.stat().st_mtime


@pytest.mark.slow
def test_a_sweep_whose_first_job_fails_in_the_second_process(tmp_path: Path) -> None:
    words = *COPY, *TWO, "model.backend=fused", *fails(1, "4,99", "raises")
    outcome = invoke("-m", *words, f"hydra.sweep.dir={tmp_path}/sweep")
    locks = (tmp_path / "sweep").rglob(".lock")
    failed, done = sorted((lock.parent for lock in locks), key=lambda directory: (directory / "DONE").exists())
    assert outcome.status == 1
    assert "process 1: LookupError: a test wants it so" in outcome.err
    assert "on_train_batch_start" in (failed / "FAILED").read_text(), "the traceback is missing"
    assert not (failed / "DONE").exists()
    assert not (done / "FAILED").exists()
    assert load_last(failed)["global_step"] == 3
    assert seconds_to_fail(failed) < 30
    assert outcome.err.count("runs on the fused backend") == 2, "both processes of a job log"

    alone = run(tmp_path / "alone", *COPY)
    assert_close(done, alone)
    names = {path.relative_to(alone).as_posix() for path in alone.rglob("*")}
    assert {path.relative_to(done).as_posix() for path in done.rglob("*")} == names
    assert (done / "examples.txt").read_text().count("step ") == (alone / "examples.txt").read_text().count("step ")

    outcome = invoke(
        f"run={done.rename(tmp_path / 'done')}", "split=test", "trust=tests", entry="evaluate"
    )  # takes one process
    assert outcome.status == 0, outcome.err


@pytest.mark.slow
def test_recall_in_two_processes_equals_recall_in_one(tmp_path: Path) -> None:
    assert_close(run(tmp_path / "two", *RECALL, *TWO), run(tmp_path / "one", *RECALL))


def test_text_in_two_processes_equals_text_in_one_after_resuming(tmp_path: Path, text: tuple[str, ...]) -> None:
    alone = run(tmp_path / "alone", *text)
    assert_close(alone, stop_and_resume(tmp_path / "stopped", text))


@pytest.mark.slow
def test_a_resumed_run_in_two_processes_is_equal_bit_for_bit(tmp_path: Path, text: tuple[str, ...]) -> None:
    whole = run(tmp_path / "whole", *text, *TWO)
    stopped = stop_and_resume(tmp_path / "stopped", text)
    assert_same_run(whole, stopped)
    assert_same(load_last(whole)["carried"], load_last(stopped)["carried"])


def stop_and_resume(directory: Path, text: tuple[str, ...]) -> Path:
    """Stop a run of two processes by a signal to the second one, in a pass whose last window has no targets for it."""
    step, first = SequenceTask.training_step, os.getpid()

    def ask_to_stop(task: SequenceTask, *arguments: Any) -> Any:
        if task.global_step == 10 and os.getpid() != first:
            os.kill(os.getpid(), signal.SIGTERM)
        return step(task, *arguments)

    with pytest.MonkeyPatch.context() as context:
        context.setattr(peers, "subprocess", SimpleNamespace(Popen=ForkedPython, PIPE=subprocess.PIPE))
        with context.context() as stopping:
            stopping.setattr(SequenceTask, "training_step", ask_to_stop)
            outcome = invoke(*text, *TWO, f"hydra.run.dir={directory}")
        assert outcome.status == 130, outcome.err
        assert f"resume={directory}" in outcome.err
        assert load_last(directory)["global_step"] == 11, "the second process has not received the signal"
        assert not (directory / "FAILED").exists()
        outcome = invoke(f"resume={directory}")
    assert outcome.status == 0, outcome.err
    return directory


class ForkedPython:
    """Executes `python -P -c <code>` in a fork of this process, which has imported all, as `subprocess.Popen` does.

    Slow tests start real processes.
    """

    def __init__(self, command: list[str], stdin: int, pass_fds: list[int]) -> None:
        python, safe, option, code, connection, *paths = command
        assert (python, safe, option, stdin) == (sys.executable, "-P", "-c", subprocess.PIPE)
        assert connection == str(pass_fds[0]), "the connection is not inherited"
        assert paths == [path for path in sys.path if path]
        self._status: int | None = None
        self._waiting = threading.Lock()
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(writing)  # at its end this process ends
            self._execute(code, ["-c", connection, *paths], reading)
        os.close(reading)
        self.stdin = os.fdopen(writing, "wb")

    @staticmethod
    def _execute(code: str, arguments: list[str], reading: int) -> NoReturn:
        try:
            sys.stdin = os.fdopen(reading)
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
            sys.argv = arguments
            logging.getLogger().handlers.clear()  # they write to the log of the first process
            GlobalHydra.instance().clear()
            exec(code, {"__name__": "__main__"})
        except BaseException:  # also SystemExit: whatever ends the code, this copy of pytest must not go on
            traceback.print_exc()
        finally:
            os._exit(1)

    def poll(self, options: int = os.WNOHANG) -> int | None:
        with self._waiting:
            if self._status is None:
                ended, status = os.waitpid(self.pid, options)
                self._status = os.waitstatus_to_exitcode(status) if ended else None
            return self._status

    def wait(self) -> int:
        return self.poll(0) or 0

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1], ids=["first", "second"])
def test_a_suspended_process_ends_the_job(tmp_path: Path, number: int) -> None:
    arguments = [*COPY, *TWO, f"hydra.run.dir={tmp_path}", "trainer.max_steps=100000"]
    command = f"import sys; from gyral import train; sys.argv[1:] = {arguments}"
    sooner = "from gyral.training.ddp import peers; peers.STOPPED = 3.0"
    with subprocess.Popen(
        [sys.executable, "-c", f"{command}; {sooner}\nif __name__ == '__main__': train.main()"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as first:
        while not (tmp_path / "checkpoints" / "last.ckpt").exists():
            assert first.poll() is None, first.communicate()[0]
            time.sleep(0.1)
        (second,) = other_processes(first.pid)
        os.kill((first.pid, second)[number], signal.SIGSTOP)
        printed, _ = first.communicate(timeout=60)
    reason = f"process {number} was stopped by a signal and did not continue in 3 seconds"
    assert first.returncode == (-signal.SIGKILL if number == 0 else 1)
    assert reason in (tmp_path / "FAILED").read_text()
    assert number == 0 or f"error: {reason}" in printed
    wait_for_end(second)


@pytest.mark.slow
def test_three_processes_resume_bit_equal_and_one_process_can_resume_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = ("trainer=ddp", "trainer.devices=3", "task.batch_size=9")
    noisy = (*COPY, *three, "model.cell.zoneout=0.2")
    whole, stopped, other = (tmp_path / name for name in ("whole", "stopped", "other"))
    run(whole, *noisy)
    states = load_last(whole)["callbacks"]["Checkpoints"]["random"]
    assert len({tuple(state["torch"].tolist()) for state in states}) == 3, "processes draw the same masks"
    validate = SequenceTask.validation_step

    def interrupt(task: SequenceTask, batch: Any, index: int) -> Any:
        if task.global_step == 16 and index == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return validate(task, batch, index)

    for directory in (stopped, other):
        with monkeypatch.context() as context:
            context.setattr(SequenceTask, "validation_step", interrupt)
            assert invoke(*noisy, f"hydra.run.dir={directory}").status == 130
        assert load_last(directory)["global_step"] == 16
    assert invoke(f"resume={stopped}").status == 0
    assert_same_run(whole, stopped)
    run(other, *noisy, "trainer=cpu")
    assert load_last(other)["global_step"] == 24


@pytest.mark.slow
def test_one_process_resumes_the_carried_state_of_two(tmp_path: Path, text: tuple[str, ...]) -> None:
    """As if it had been one from the start."""
    directory = tmp_path / "run"
    outcome = invoke(*text, *TWO, *fails(1, 13, "raises"), f"hydra.run.dir={directory}")
    assert "LookupError" in outcome.error
    config = directory / "config.yaml"
    config.write_text(config.read_text().replace("step: 13", "step: 99"))
    run(directory, *text, *fails(1, 99, "raises"))
    assert_close(directory, run(tmp_path / "alone", *text, *fails(1, 99, "raises")))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["vanishes", "leaves the other waiting"])
def test_a_lost_process_ends_the_job(tmp_path: Path, how: str) -> None:
    arguments = [*COPY, *TWO, *fails(1, 4, how), f"hydra.run.dir={tmp_path}"]
    command = f"import sys; from gyral import train; sys.argv[1:] = {arguments}"
    shorter = "from gyral.training.ddp import peers; peers.GRACE = 3"
    outcome = spawn("-c", f"{command}; {shorter}\nif __name__ == '__main__': train.main()")
    assert seconds_to_fail(tmp_path) < 30
    assert "process 1 ended with exit status 9" in outcome.error
    assert "process 1 ended with exit status 9" in (tmp_path / "FAILED").read_text()
    assert not (tmp_path / "DONE").exists()


@pytest.mark.slow
def test_two_nodes_keep_one_run(tmp_path: Path) -> None:
    """Both on this machine."""
    arguments = [*COPY, "trainer=ddp", "trainer.devices=1", "trainer.num_nodes=2", f"hydra.run.dir={tmp_path}/two"]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda n: spawn("-m", "src.train", *arguments, NODE_RANK=n, **meeting), "01"))
    for outcome in outcomes:
        assert outcome.status == 0, outcome.err
    assert "test loss" in outcomes[0].out
    assert "test loss" not in outcomes[1].out
    assert_close(tmp_path / "two", run(tmp_path / "one", *COPY))


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([*TWO, "task.batch_size=9"], "task.batch_size=9: must be a multiple of 2"),
        (["+trainer.strategy=ddp_spawn"], "trainer.strategy=ddp_spawn: must be one of auto, ddp"),
        ([*TWO, "trainer.num_nodes=2"], "trainer.num_nodes=2: start the same command on each node"),
    ],
)
def test_unsupported_options_of_ddp_are_one_line(tmp_path: Path, overrides: list[str], said: str) -> None:
    assert said in invoke(*COPY, *overrides, f"hydra.run.dir={tmp_path}").error


@pytest.mark.parametrize(("rows", "sizes"), [(6, [2, 2, 2]), (5, [2, 2, 1]), (1, [1, 0, 0])])
def test_every_row_is_taken_once(rows: int, sizes: list[int]) -> None:
    batch = Batch(*(torch.arange(rows).view(-1, 1) + offset for offset in (0, 10, 20)))
    parts = [local_rows(batch, rank, 3) for rank in range(3)]
    assert [len(part.inputs) for part in parts] == sizes
    for whole, *leaves in zip(batch[:3], *(part[:3] for part in parts), strict=True):
        assert torch.equal(torch.cat(leaves), whole)
