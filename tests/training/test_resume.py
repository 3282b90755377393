"""Runs that were killed, stopped or spoiled end bit-equal to one that nothing happened to, and say what is wrong."""

import fcntl
import functools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from gyral import train
from gyral.cells.gru import GRUCell
from gyral.core import signals
from gyral.core.errors import OptionError
from gyral.runs.directory import load_run
from gyral.tasks.base import SequenceTask
from gyral.training import build, checkpoints
from tests.faults import forks
from tests.helpers import killing
from tests.helpers.moments import copy_at, copy_once, train_and_copy
from tests.helpers.running import (
    ROOT,
    SMALL_COPY,
    SMALL_PROGRAMS,
    SMALL_RECALL,
    Outcome,
    assert_same,
    assert_same_run,
    invoke,
    load_last,
    read_rows,
    small_text,
)

# zoneout makes every step depend on the state of the random generator
COPY = (*SMALL_COPY, "model=rum", "model.cell.zoneout=0.2")
RECALL = (*SMALL_RECALL, "model=rum", "model.cell.lambd=1", "model.cell.zoneout=0.2")
PLATEAU = (
    *SMALL_RECALL,
    "model=gru",
    "scheduler=plateau",
    "scheduler.patience=0",
    "optimizer=adam",
    "optimizer.lr=0.3",
)
CURRICULUM = (*SMALL_PROGRAMS, "model=gru", "scheduler=recent_best", "optimizer.lr=0.003")
CHEAP = (
    *SMALL_RECALL,
    "model=gru",
    "optimizer.lr=0.001",
    "trainer.max_steps=12",
    "trainer.val_check_interval=4",
)
# on a text, of which a pass is 9 steps
TEXT = {
    "gru": ("model=gru", "optimizer=adam"),
    "rum": ("model=rum", "model.cell.lambd=1", "model.cell.zoneout=0.2"),
    "fs_lstm": ("model=fs_lstm", "model.cell.slow_size=6", "model.cell.fast.zoneout=0.1", "model.embedding_size=5"),
    "dynamic_conv": (
        *("model=dynamic_conv", "model.cell.kernel_size=5", "model.cell.weight_dropout=0.2", "optimizer=adam"),
        *("model.block=prenorm", "model.num_layers=2", "model.dropout=0.1"),
    ),
}

# Where a run is killed: a point of tests/killing.py and the optimizer steps taken then. SMALL writes last.ckpt every 3
# steps, logs every 2, validates every 8, ends after 24.
POINTS = [
    ["before_step", 2],  # before there is a checkpoint
    ["before_update", 4],  # gradients are there, the weights are old
    ["in_validation", 8],
    ["before_replace", 9],  # the checkpoint is written but not yet in its place
    ["after_replace", 15],
    ["in_metrics", 19],  # half a row is in metrics.csv
    ["before_step", 21],
]
TEXT_POINTS = {
    "gru": [["in_validation", 8], ["in_metrics", 23]],
    "rum": [["before_update", 5], ["after_replace", 15]],
    "fs_lstm": [["before_replace", 9], ["before_update", 17]],
    "dynamic_conv": [["before_update", 5], ["after_replace", 15]],
}


def kill_and_continue(tmp_path: Path, arguments: tuple[str, ...], points: list[list[Any]]) -> tuple[Path, Path, str]:
    """Run once uninterrupted and once killed at each point; return both directories and what the runs printed."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    again = [*arguments, f"hydra.run.dir={killed}"]
    # alternately by the same command and by the directory's own configuration
    commands = [[f"resume={killed}"] if index % 2 else again for index in range(len(points) + 1)]
    commands[: 1 + first_checkpoint(points)] = [again] * (1 + first_checkpoint(points))
    plan = [[None, [*arguments, f"hydra.run.dir={whole}"]], *zip([*points, None], commands, strict=True)]
    ended = [forks.fork(lambda point=point, words=words: run(point, words), ROOT, limit=60) for point, words in plan]
    assert [one.status for one in ended] == [0, *[-signal.SIGKILL] * len(points), 0], ended
    assert (killed / "DONE").exists()
    return whole, killed, "".join(one.out + one.err for one in ended)


def run(point: list[Any] | None, words: list[str]) -> None:
    """Run `gyral train` in this process, which kills itself at a point."""
    if point is not None:
        killing.arm(*point)
    train.loss_curve = lambda *_: None  # half of the time of a small run
    sys.argv = ["src/train.py", *words]
    train.main()


def first_checkpoint(points: list[list[Any]]) -> int:
    """Return how many of the kills come before the first checkpoint, after three steps."""
    return sum(step < 3 for _, step in points)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "points"),
    [
        pytest.param(COPY, POINTS, id="copy"),
        pytest.param(RECALL, POINTS[::2], id="recall", marks=pytest.mark.slow),
        pytest.param(PLATEAU, [POINTS[2], POINTS[4]], id="plateau", marks=pytest.mark.slow),
        pytest.param(CURRICULUM, POINTS[1:], id="curriculum", marks=pytest.mark.slow),
    ],
)
def test_a_run_killed_at_several_points_ends_bit_equal(
    tmp_path: Path, arguments: tuple[str, ...], points: list[list[Any]]
) -> None:
    whole, killed, printed = kill_and_continue(tmp_path, arguments, points)
    assert printed.count("Resuming from") == len(points) - first_checkpoint(points)
    assert_same_run(whole, killed)
    assert (
        json.loads((whole / "DONE").read_text())["test/loss"] == json.loads((killed / "DONE").read_text())["test/loss"]
    )
    assert [row["step"] for row in read_rows(killed)].count("24") == 1
    assert not list(killed.rglob("*.tmp"))


def copy_and_continue(tmp_path: Path, arguments: tuple[str, ...], points: list[list[Any]]) -> tuple[Path, Path, str]:
    """Do what `kill_and_continue` does within this process: a copy of a run made at a point is what a kill leaves."""
    directories = [tmp_path / name for name in ("whole", *map(str, range(len(points))))]
    printed = ""
    for index, directory in enumerate(directories):
        words = [f"resume={directory}"] if index else [*arguments, f"hydra.run.dir={directory}"]
        with pytest.MonkeyPatch.context() as context:
            for point, target in zip(points[index:], directories[index + 1 :], strict=True):
                killing.arm(*point, act=functools.partial(copy_once, directory, target), patch=context.setattr)
                break  # the next one is left by the resumed run
            outcome = invoke(*words)
        assert outcome.status == 0, outcome.err
        printed += outcome.err
    return directories[0], directories[-1], printed


@pytest.mark.parametrize(
    ("model", "interrupt"),
    [
        ("rum", copy_and_continue),
        *(pytest.param(model, kill_and_continue, marks=pytest.mark.slow) for model in TEXT),
    ],
)
def test_a_run_killed_inside_a_text_resumes_with_its_carried_state(
    tmp_path: Path, model: str, interrupt: Callable[..., tuple[Path, Path, str]]
) -> None:
    points = TEXT_POINTS[model]
    whole, killed, printed = interrupt(tmp_path, (*small_text(tmp_path), *TEXT[model]), points)
    assert "one pass over the training text takes 9 steps" in printed
    assert printed.count("Resuming from") == len(points)
    assert any(leaf.abs().sum() > 0 for leaf in load_last(whole)["carried"])
    assert_same_run(whole, killed)
    results = [json.loads((directory / "DONE").read_text()) for directory in (whole, killed)]
    for name in ("test/loss", "test/bits", "test/perplexity", "test/accuracy"):
        assert results[0][name] == results[1][name]


# windows of random length, averaged SGD that starts at a validation (step 16), dropout of weights, dynamic evaluation
AWD = (
    "model=lstm",
    "model.layer_sizes=[7,5]",
    "model.embedding_size=5",
    "model.tied=true",
    "model.locked_dropout=true",
    "model.output_dropout=0.3",
    "model.embedding_dropout=0.1",
    "model.weight_drop=0.4",
    "optimizer=sgd",
    "optimizer.lr=30",
    "callbacks=averaging",
    "callbacks.averaging.patience=1",
    "trainer.val_check_interval=4",
    "task.window_deviation=3",
    "task.reset_probability=0.3",
    "task.activation_regularization=2",
    "task.temporal_regularization=1",
    "task.dynamic=rms",
)


@pytest.mark.slow
def test_a_killed_run_of_awd_lstm_ends_bit_equal(tmp_path: Path) -> None:
    points = [["before_update", 5], ["in_validation", 12], ["after_replace", 18], ["before_step", 23], ["in_test", 24]]
    whole, killed, printed = kill_and_continue(tmp_path, (*small_text(tmp_path), *AWD), points)
    assert "Averaging the weights from step" in printed
    assert printed.count("Resuming from") == len(points)
    assert_same_run(whole, killed)
    assert_same(load_last(whole)["averaging_state"], load_last(killed)["averaging_state"])
    assert int(load_last(whole)["averaging_state"]["n_averaged"]) > 3
    results = [json.loads((directory / "DONE").read_text()) for directory in (whole, killed)]
    for name in ("test/loss", "test/perplexity", "test/dynamic_loss", "test/dynamic_perplexity"):
        assert results[0][name] == results[1][name]
    assert results[0]["test/loss"] != results[0]["test/dynamic_loss"]


MOMENTS = [
    ("after_replace", 6),  # a row of metrics.csv is due at the very step of the checkpoint
    ("after_replace", 12),  # trained to the end, not tested
    ("in_test", 12),
]


@pytest.mark.parametrize(("point", "step"), MOMENTS)
def test_a_kill_right_after_a_checkpoint_loses_nothing(whole: Path, tmp_path: Path, point: str, step: int) -> None:
    killed = Path(shutil.copytree(copy_at(whole, point, step), tmp_path / "killed"))
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, killed)


def test_a_run_killed_inside_a_curriculum_resumes_at_its_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as context:
        killing.arm("before_step", 11, act=lambda: shutil.copytree(whole, killed), patch=context.setattr)
        assert invoke(*CURRICULUM, f"hydra.run.dir={whole}").status == 0
    assert load_last(killed)["curriculum"]["level"] == 3
    outcome = invoke(f"resume={killed}")
    assert outcome.status == 0, outcome.err
    assert load_last(killed)["curriculum"]["level"] == 4
    assert_same_run(whole, killed)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [COPY, RECALL], ids=["copy", "recall"])
def test_the_real_command_killed_from_outside_ends_bit_equal(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    arguments = (*arguments, "trainer.max_steps=200")
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert invoke(*arguments, f"hydra.run.dir={whole}").status == 0
    for after in (10, 90, 170):
        process = subprocess.Popen(
            [sys.executable, "-m", "src.train", *arguments, f"hydra.run.dir={killed}"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and last_step(killed) < after:
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert invoke(f"resume={killed}").status == 0
    assert_same_run(whole, killed)


def last_step(directory: Path) -> int:
    try:
        return int((directory / "metrics.csv").read_text().splitlines()[-1].split(",")[0])
    except (OSError, ValueError, IndexError):
        return -1


def interrupt_at(
    monkeypatch: pytest.MonkeyPatch, step: int, method: str = "training_step", number: int = signal.SIGINT
) -> None:
    """Have this process interrupted, as by Ctrl-C, in a method of the task after so many optimizer steps, once."""
    original = getattr(SequenceTask, method)
    sent = []

    def wrapped(task: SequenceTask, *arguments: Any) -> Any:
        if task.global_step == step and not sent:
            sent.append(step)
            os.kill(os.getpid(), number)
        return original(task, *arguments)

    monkeypatch.setattr(SequenceTask, method, wrapped)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CHEAP that nothing happened to. Tests copy it before they change anything.

    Beside it are its copies of `MOMENTS`.
    """
    directory = tmp_path_factory.mktemp("runs") / "whole"
    train_and_copy(directory, MOMENTS, *CHEAP)
    return directory


@pytest.fixture(scope="module")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run stopped by Ctrl-C in step 7, with its last checkpoint after that step."""
    directory = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.MonkeyPatch.context() as monkeypatch:
        interrupt_at(monkeypatch, 6)
        outcome = invoke(*CHEAP, f"hydra.run.dir={directory}")
    check_stopped(outcome, directory, saved=7)
    return directory


def check_stopped(outcome: Outcome, directory: Path, saved: int) -> None:
    """Check that a signal has stopped a run, with a checkpoint after a number of steps."""
    assert outcome.status == 130, outcome.err
    assert f"python -m src.train resume={directory}" in outcome.err
    assert "Traceback" not in outcome.err
    assert not (directory / "DONE").exists()
    assert not (directory / "FAILED").exists()
    assert load_last(directory)["global_step"] == saved
    assert outcome.handlers_put_back, "Ctrl-C does something else afterwards"


@pytest.fixture
def stopped(stopped_run: Path, tmp_path: Path) -> Path:
    """A copy of the stopped run."""
    return Path(shutil.copytree(stopped_run, tmp_path / "stopped"))


def snapshot(directory: Path) -> dict[str, bytes]:
    """Return the content of every file that a run keeps, without log and lock."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("train.log", ".lock")
    }


@pytest.mark.parametrize(
    ("point", "step", "number", "saved"),
    [
        pytest.param("before_step", 5, signal.SIGINT, 6, marks=pytest.mark.slow),  # `stopped_run` is stopped so, too
        ("in_test", 12, signal.SIGHUP, 12),
        ("in_validation", 8, signal.SIGTERM, 8),
        ("before_replace", 9, signal.SIGUSR1, 10),
        pytest.param("before_step", 11, signal.SIGHUP, 12, marks=pytest.mark.slow),
        pytest.param("before_step", 7, signal.SIGUSR2, 8, marks=pytest.mark.slow),
        pytest.param("before_replace", 12, signal.SIGTERM, 12, marks=pytest.mark.slow),
    ],
)
def test_a_signal_writes_a_checkpoint_and_prints_the_resume_command(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, point: str, step: int, number: int, saved: int
) -> None:
    directory = tmp_path / "run"
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    with monkeypatch.context() as context:
        killing.arm(point, step, lambda: os.kill(os.getpid(), number), context.setattr)
        outcome = invoke(*CHEAP, f"hydra.run.dir={directory}")
    signal.signal(signal.SIGHUP, former)
    check_stopped(outcome, directory, saved)
    outcome = invoke(f"resume={directory}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, directory)


def test_a_program_that_exits_in_a_run_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceTask, "training_step", lambda *_: sys.exit())
    assert "the run was ended by sys.exit()" in invoke(*CHEAP, f"hydra.run.dir={tmp_path}").error
    assert "SystemExit" in (tmp_path / "FAILED").read_text()


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, now = SequenceTask.training_step, [100.0]
    monkeypatch.setattr(signals, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def twice(task: SequenceTask, *arguments: Any) -> Any:
        if task.global_step == 7:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)  # at once: one Ctrl-C that arrived twice, as from a shell and a parent
            now[0] += 2 * signals.SECOND
            os.kill(os.getpid(), signal.SIGINT)
            pytest.fail("the second one did not stop it")
        return original(task, *arguments)

    monkeypatch.setattr(SequenceTask, "training_step", twice)
    assert invoke(*CHEAP, f"hydra.run.dir={tmp_path}").status == 130
    assert load_last(tmp_path)["global_step"] == 6
    assert not (tmp_path / "FAILED").exists()


@pytest.mark.parametrize("gap", [0.02, *(pytest.param(gap, marks=pytest.mark.slow) for gap in (0, 0.005, 0.05))])
@pytest.mark.parametrize("moment", [0, *(pytest.param(moment, marks=pytest.mark.slow) for moment in range(1, 10))])
def test_two_sigterms_leave_a_checkpoint(
    gap: float, moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM sends them some milliseconds apart. The second one may arrive while the checkpoint is written."""
    started, sent = threading.Event(), threading.Event()
    original = SequenceTask.training_step
    save = checkpoints.SafeCheckpointIO.save_checkpoint

    def step(task: SequenceTask, *arguments: Any) -> Any:
        if task.global_step == 4:
            started.set()
            time.sleep(0.002 * moment)
        if task.global_step == 10:  # before the run ends, however slow the other thread is
            assert sent.wait(60)
        return original(task, *arguments)

    def slow_save(*arguments: Any, **options: Any) -> None:
        save(*arguments, **options)
        time.sleep(0.06)

    def send() -> None:
        started.wait()
        time.sleep(0.001 * moment)
        os.kill(os.getpid(), signal.SIGTERM)
        sent.set()
        time.sleep(gap)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(SequenceTask, "training_step", step)
    monkeypatch.setattr(checkpoints.SafeCheckpointIO, "save_checkpoint", slow_save)
    sender = threading.Thread(target=send)
    sender.start()
    outcome = invoke(*CHEAP, "callbacks.checkpoints.every=1000", f"hydra.run.dir={tmp_path}")
    sender.join()
    assert outcome.status == 130, outcome.err
    logged = int(read_rows(tmp_path)[-1]["step"])
    assert load_last(tmp_path)["global_step"] >= max(5, logged + 1)
    assert outcome.err.count("Stopping after this step") == 1


def test_a_closed_terminal_does_not_stop_a_run_under_nohup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        interrupt_at(monkeypatch, 5, number=signal.SIGHUP)
        assert invoke(*CHEAP, "trainer.max_steps=6", f"hydra.run.dir={tmp_path}").status == 0
    finally:
        signal.signal(signal.SIGHUP, former)


@pytest.mark.parametrize("same_command", [True, False], ids=["same command", "resume"])
def test_done_is_not_trained_again(whole: Path, same_command: bool) -> None:
    directory = whole
    before = snapshot(directory)
    times = {path: path.stat().st_mtime_ns for path in (directory / "checkpoints").iterdir()}
    outcome = invoke(*CHEAP, f"hydra.run.dir={directory}") if same_command else invoke(f"resume={directory}")
    assert outcome.status == 0, outcome.err
    assert "is DONE and is not trained again" in outcome.err
    assert "test loss" in outcome.out
    assert snapshot(directory) == before
    assert {path: path.stat().st_mtime_ns for path in (directory / "checkpoints").iterdir()} == times


def test_a_run_resumes_with_the_defaults_that_it_began_with(
    stopped: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GRUCell.__defaults__, "zoneout", 0.5)  # as a later version might have it
    before = json.loads((stopped / "provenance.json").read_text())
    monkeypatch.setattr("gyral.runs.provenance.git_commit", lambda: "0123")
    outcome = invoke(f"resume={stopped}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, stopped)
    assert json.loads((stopped / "provenance.json").read_text()) == {**before, "resumed_with": ["0123"]}


def test_the_same_command_resumes_with_another_logger_or_data_directory(
    stopped: Path, whole: Path, tmp_path: Path
) -> None:
    outcome = invoke(*CHEAP, "logger=csv", f"paths.data_dir={tmp_path}", f"hydra.run.dir={stopped}")
    assert outcome.status == 0, outcome.err
    assert f"Resuming from {stopped / 'checkpoints' / 'last.ckpt'}" in outcome.err
    assert_same_run(whole, stopped)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("optimizer.lr=0.5", "optimizer.lr is 0.001 there and 0.5 here"),
        ("model=lstm", "model.cell._target_ is gyral.cells.gru.GRUCell there and gyral.cells.lstm.LSTMCell here"),
        pytest.param("seed=2", "seed is 1 there and 2 here", marks=pytest.mark.slow),
        pytest.param("trainer.max_steps=30", "trainer.max_steps is 12 there and 30 here", marks=pytest.mark.slow),
    ],
)
def test_another_configuration_in_the_directory_is_refused(stopped: Path, override: str, expected: str) -> None:
    before = snapshot(stopped)
    error = invoke(*CHEAP, override, f"hydra.run.dir={stopped}").error
    assert error.startswith(f"hydra.run.dir={stopped}: ")
    assert expected in error
    assert snapshot(stopped) == before


def test_options_beside_resume_are_refused(stopped: Path) -> None:
    before = snapshot(stopped)
    error = invoke(f"resume={stopped}", "optimizer.lr=0.5").error
    assert error.startswith(f"resume={stopped}: ")
    assert "optimizer.lr=0.5" in error
    assert snapshot(stopped) == before


def test_a_directory_in_use_is_refused(stopped: Path) -> None:
    before = snapshot(stopped)
    with (stopped / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for arguments in ([f"resume={stopped}"], [*CHEAP, f"hydra.run.dir={stopped}"]):
            assert invoke(*arguments).error == f"hydra.run.dir={stopped}: another process is running there"
    assert snapshot(stopped) == before


class RunsCode:
    """Unpickled, it would create a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.trace}",)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def randomize(path: Path) -> None:
    path.write_bytes(torch.randint(256, (4000,), dtype=torch.uint8).numpy().tobytes())


def plant_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"state_dict": RunsCode(path.parent / "ran")}))


def plant_torch_pickle(path: Path) -> None:
    torch.save({"state_dict": {}, "global_step": 3, "loops": RunsCode(path.parent / "ran")}, path)


def strip(path: Path) -> None:
    torch.save({"state_dict": {}}, path)


def replace_by_tensor(path: Path) -> None:
    torch.save(torch.zeros(3), path)


def replace_by_another_model(path: Path) -> None:
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["state_dict"] = {name: value[..., :-1] for name, value in checkpoint["state_dict"].items()}
    torch.save(checkpoint, path)


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


SPOILED = [
    (empty, "damaged or not a checkpoint"),
    (randomize, "damaged or not a checkpoint"),
    (plant_pickle, "damaged or not a checkpoint"),
    (plant_torch_pickle, "execute code"),
    (strip, "was not written by a training run"),
    (replace_by_tensor, "was not written by a training run"),
    (replace_by_another_model, "of another model"),
    (flip_a_byte, "is damaged: a checksum does not match"),
]


def test_a_spoiled_checkpoint_is_refused(stopped: Path, tmp_path: Path) -> None:
    path = stopped / "checkpoints" / "last.ckpt"
    task = build.build_task(load_run(stopped).config)
    for spoil, said in SPOILED:
        shutil.copyfile(path, spoiled := tmp_path / f"{spoil.__name__}.ckpt")
        spoil(spoiled)
        with pytest.raises(OptionError) as raised:
            checkpoints.validate_checkpoint(task, spoiled)
        assert str(raised.value).startswith(f"checkpoint={spoiled}: ")
        assert said in str(raised.value)
        assert not (tmp_path / "ran").exists(), "the pickle's code ran"


@pytest.mark.parametrize(
    ("spoil", "said", "entry"),
    [
        *(pytest.param(*spoiled, "train", marks=pytest.mark.slow) for spoiled in SPOILED if spoiled[0] != flip_a_byte),
        (plant_torch_pickle, "execute code", "train"),
        (plant_torch_pickle, "execute code", "evaluate"),
        (flip_a_byte, "is damaged: a checksum does not match", "evaluate"),
        pytest.param(replace_by_another_model, "of another model", "evaluate", marks=pytest.mark.slow),
    ],
)
def test_a_command_refuses_a_spoiled_checkpoint_and_changes_nothing(
    stopped: Path, spoil: Callable[[Path], None], said: str, entry: str
) -> None:
    path = stopped / "checkpoints" / "last.ckpt"
    path.with_name("previous.ckpt").unlink()  # it would be used instead
    spoil(path)
    before = snapshot(stopped)
    arguments = [f"resume={stopped}"] if entry == "train" else [f"run={stopped}", "checkpoint=last"]
    error = invoke(*arguments, entry=entry).error
    assert error.startswith(f"checkpoint={path}: ")
    assert said in error
    assert not (path.parent / "ran").exists(), "the pickle's code ran"
    assert snapshot(stopped) == before


@pytest.mark.parametrize(
    "spoil",
    [flip_a_byte, *(pytest.param(spoil, marks=pytest.mark.slow) for spoil in (truncate, Path.unlink))],
)
def test_the_previous_checkpoint_replaces_a_damaged_one(
    tmp_path: Path, whole: Path, spoil: Callable[[Path], None]
) -> None:
    """It is of step 9; in metrics.csv and examples.txt, there is more already."""
    directory = Path(shutil.copytree(whole, tmp_path / "run"))
    path = directory / "checkpoints" / "last.ckpt"
    (directory / "DONE").unlink()
    spoil(path)
    outcome = invoke(f"resume={directory}")
    assert outcome.status == 0, outcome.err
    (line,) = (line for line in outcome.err.splitlines() if str(path) in line and "Resuming" not in line)
    assert line.endswith("the previous checkpoint is used (step 9)")
    assert (path.with_name("damaged.ckpt")).exists() == (spoil is not Path.unlink)
    assert_same_run(whole, directory)
    assert (directory / "examples.txt").read_text() == (whole / "examples.txt").read_text()


def test_two_damaged_checkpoints_are_refused(stopped: Path) -> None:
    path = stopped / "checkpoints" / "last.ckpt"
    flip_a_byte(path), flip_a_byte(path.with_name("previous.ckpt"))
    before = snapshot(stopped)
    error = invoke(f"resume={stopped}").error
    assert error == (
        f"checkpoint={path}: is damaged: a checksum does not match;"
        f" without the folder {path.parent}, the run starts from step 0"
    )
    assert snapshot(stopped) == before


@pytest.mark.parametrize("given", ["hydra.run.dir", "-m"])
def test_resume_beside_another_directory_is_refused(tmp_path: Path, given: str) -> None:
    words = ["-m", f"hydra.sweep.dir={tmp_path}/other"] if given == "-m" else [f"hydra.run.dir={tmp_path}/other"]
    assert invoke(f"resume={tmp_path}/none", *words).error.startswith(f"resume={tmp_path}/none: ")
    assert not (tmp_path / "other").exists()


def test_evaluating_a_run_without_checkpoint_is_refused(stopped: Path) -> None:
    shutil.rmtree(stopped / "checkpoints")
    error = invoke(f"run={stopped}", entry="evaluate").error
    assert error == f"run={stopped}: has no checkpoint; it was stopped before its first one"


def test_resuming_a_run_without_checkpoint_starts_again(stopped: Path, whole: Path) -> None:
    shutil.rmtree(stopped / "checkpoints")
    assert (stopped / "examples.txt").exists()
    saved = (stopped / "config.yaml").read_text()
    with pytest.MonkeyPatch.context() as monkeypatch:
        # the wrong configuration would train for minutes
        monkeypatch.setattr("gyral.training.build.build_task", check_config_first(saved))
        outcome = invoke(f"resume={stopped}")
    assert outcome.status == 0, outcome.err
    assert_same_run(whole, stopped)
    assert (stopped / "examples.txt").read_text() == (whole / "examples.txt").read_text()


def check_config_first(saved: str) -> Callable[..., Any]:
    """Return `build_task` that refuses to build anything but the saved configuration."""

    def check_and_build(config: Any) -> Any:
        assert OmegaConf.to_yaml(config) == saved, "another configuration than the directory's own"
        return build_task(config)

    build_task = build.build_task
    return check_and_build


def test_numbers_that_explode_fail_the_run_and_keep_the_last_good_checkpoint(tmp_path: Path) -> None:
    exploding = (*CHEAP, "optimizer=sgd", "optimizer.lr=3e38", "trainer.gradient_clip_val=null")
    outcome = invoke(*exploding, "callbacks.checkpoints.every=1", f"hydra.run.dir={tmp_path}")
    assert "step " in outcome.error
    assert "first non-finite: " in outcome.error or "is not finite" in outcome.error
    assert "NonFiniteError" in (tmp_path / "FAILED").read_text()
    assert not (tmp_path / "DONE").exists()
    weights = load_last(tmp_path)["state_dict"]
    assert all(value.isfinite().all() for value in weights.values())


def test_a_retried_run_ends_bit_equal(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = SequenceTask.loss

    def poisoned(task: SequenceTask, *arguments: Any) -> Any:
        loss = original(task, *arguments)
        return loss * float("nan") if task.training and task.global_step == 10 else loss

    with monkeypatch.context() as context:
        context.setattr(SequenceTask, "loss", poisoned)
        error = invoke(*CHEAP, f"hydra.run.dir={tmp_path}").error
    assert "step 11" in error
    assert "first non-finite: the loss" in error
    assert "Traceback" in (tmp_path / "FAILED").read_text()
    assert load_last(tmp_path)["global_step"] == 9

    outcome = invoke(*CHEAP, f"hydra.run.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    assert "Resuming from" in outcome.err
    assert not (tmp_path / "FAILED").exists()
    assert (tmp_path / "DONE").exists()
    assert_same_run(whole, tmp_path)


def test_a_full_disk_fails_the_run_with_one_line_and_keeps_the_last_good_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = torch.save

    def fail(checkpoint: dict[str, Any], file: Any) -> None:
        if checkpoint["global_step"] == 9:
            file.write(b"half of it")
            raise OSError(28, "No space left on device")
        save(checkpoint, file)

    with monkeypatch.context() as context:
        context.setattr(torch, "save", fail)
        error = invoke(*CHEAP, f"hydra.run.dir={tmp_path}").error
    assert "No space left on device" in error
    assert (tmp_path / "FAILED").exists()
    assert load_last(tmp_path)["global_step"] == 6
    assert not list((tmp_path / "checkpoints").glob("*.tmp"))
