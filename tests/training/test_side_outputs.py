"""Each output beside the training fails in turn: a line says what is missing, the run is DONE, metrics.csv is whole."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
import pytest
import wandb
from pytorch_lightning.loggers.logger import DummyLogger

from gyral.core import side_outputs
from gyral.figures import loss_curve
from gyral.reports import sweep_report
from gyral.tasks.base import SequenceTask, Task
from gyral.training.callbacks.cosines import Cosines
from gyral.training.callbacks.examples import Examples
from gyral.training.callbacks.memory_trace import MemoryTraces
from gyral.training.callbacks.norms import Norms
from gyral.training.callbacks.positions import Positions
from tests.helpers.processes import children
from tests.helpers.running import ROOT, SMALL_ALGORITHM, SMALL_RECALL, Outcome, invoke, small_text
from tests.helpers.written import metrics

RUM = (*SMALL_RECALL, "model=rum")


class Failing(DummyLogger):
    """A user's logger, whose calls raise errors."""

    def __init__(self, run: Any) -> None:
        super().__init__()

    def log_metrics(self, *_: Any, **__: Any) -> None:
        raise ConnectionError("no route to the server\nand more")

    log_hyperparams = finalize = save = after_save_checkpoint = log_metrics


class Hanging(Failing):
    """A user's logger, whose calls do not return."""

    def log_metrics(self, *_: Any, **__: Any) -> None:
        time.sleep(600)

    log_hyperparams = log_metrics


class Counting(DummyLogger):
    """A user's logger without an experiment, which works."""

    steps: ClassVar[list[int]] = []

    def __init__(self, run: Any) -> None:
        super().__init__()

    @property
    def experiment(self) -> None:  # type: ignore[override]
        return None

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        self.steps.append(int(step or 0))


def unavailable(run: Any) -> Any:
    raise RuntimeError("the server is being upgraded")


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError("no memory is left")


def no_permission(*_: Any, **__: Any) -> Any:
    raise PermissionError(13, "Permission denied", "file")


def full_disk(*_: Any, **__: Any) -> Any:
    raise OSError(28, "No space left on device")


def check(outcome: Outcome, directory: Path, said: str) -> None:
    """Check that a run is whole and that exactly one line of its log starts with a text."""
    assert outcome.status == 0, outcome.err
    assert (directory / "DONE").is_file()
    steps = [line.partition(",")[0] for line in (directory / "metrics.csv").read_text().splitlines()[1:]]
    assert set(range(1, 24, 2)) <= set(map(int, steps))
    assert len([line for line in outcome.err.splitlines() if said in line]) == 1, outcome.err
    assert "Traceback" not in outcome.err


def test_loggers_fail_one_by_one_and_another_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    within = side_outputs.within

    def within_less(seconds: float, function: Any, *rest: Any, **options: Any) -> Any:
        hangs = isinstance(getattr(function, "__self__", None), Hanging)
        return within(0.2 if hangs else seconds, function, *rest, **options)

    monkeypatch.setattr(side_outputs, "within", within_less)
    Counting.steps.clear()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").touch()  # a file in place of the folder
    options = [option for option in RUM if option != "logger=none"]
    own = [f"+logger.{target.lower()}._target_={__name__}.{target}" for target in ("Failing", "Hanging", "Counting")]
    absent = f"+logger.absent._target_={__name__}.unavailable"
    outcome = invoke(*options, "logger=tensorboard", *own, absent, f"hydra.run.dir={tmp_path}/run")
    for said in (
        "logger.failing: no route to the server and more; metrics.csv has all metrics",
        "logger.hanging: no answer in 0.2 seconds; metrics.csv has all metrics",
        "logger.absent: the server is being upgraded; metrics.csv has all metrics",
        "logger.tensorboard: ",
    ):
        check(outcome, tmp_path / "run", said)
    assert "logger.counting" not in outcome.err
    assert set(range(1, 24, 2)) <= set(Counting.steps)


@pytest.mark.parametrize(
    "failures",
    [
        {(Examples, "begin"): no_permission, (Cosines, "inspect"): full_disk, (Norms, "inspect"): out_of_memory,
         (Positions, "inspect"): full_disk},
        pytest.param({(Examples, "inspect"): out_of_memory, (Positions, "begin"): full_disk}, marks=pytest.mark.slow),
        pytest.param({(MemoryTraces, "inspect"): no_permission}, marks=pytest.mark.slow),
    ],
    ids=["both", "swapped", "memory"],
)  # fmt: skip
def test_what_is_recorded_after_validations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: dict[tuple[Any, str], Callable[..., Any]]
) -> None:
    options = (*small_text(tmp_path), "model=rum")
    if (MemoryTraces, "inspect") in failures:
        options = (*SMALL_ALGORITHM, "model=lantm")
    for (callback, method), failure in failures.items():
        monkeypatch.setattr(callback, method, failure)
        options = (*options, f"+callbacks.{callback.__name__}._target_={callback.__module__}.{callback.__name__}")
    outcome = invoke(*options, "~callbacks.examples", f"hydra.run.dir={tmp_path}/run")
    for callback, _ in failures:
        check(outcome, tmp_path / "run", f"{callback.__name__}: ")


def test_the_plot_of_the_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_curve, "plot_losses", out_of_memory)
    outcome = invoke(*RUM, f"hydra.run.dir={tmp_path}/run", plot=True)
    check(outcome, tmp_path / "run", "The plot of the losses: no memory is left; it is missing in the run directory")


def test_the_settings_of_matplotlib_of_the_user_do_not_change_a_plot(tmp_path: Path) -> None:
    run = metrics(tmp_path, "step,train/loss,val/loss\n1,0.5,\n1,,0.6\n3,0.4,\n3,,0.5\n")
    plain = loss_curve.plot_losses(run).read_bytes()
    with matplotlib.rc_context({"text.usetex": True, "axes.grid": True, "figure.autolayout": True}):
        assert loss_curve.plot_losses(run).read_bytes() == plain


def test_the_comparison_of_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_report, "print_comparison", out_of_memory)
    short = ("trainer.max_steps=2", "trainer.val_check_interval=2")
    outcome = invoke("-m", *RUM, *short, "seed=1", f"hydra.sweep.dir={tmp_path}/sweep")
    assert outcome.status == 0, outcome.err
    said = "The comparison of the runs: no memory is left; to print it: python -m src.report sweep="
    assert f"{said}{tmp_path}" in outcome.err


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")


def wandb_cores(process: int) -> list[int]:
    """Return the ids of the processes wandb-core that a process has started."""
    try:
        found = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children(process)}
    except OSError:  # a thread or a process has ended meanwhile
        return []
    return [int(child) for child, command in found.items() if b"wandb-core" in command]


def wait_for_wandb_cores(process: int) -> list[int]:
    """Return the ids of the processes wandb-core of a process as soon as there is one."""
    until = time.monotonic() + 120
    while not (found := wandb_cores(process)):
        assert time.monotonic() < until, "wandb-core has not started"
        time.sleep(0.05)
    return found


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("stage", ["first", pytest.param("last", marks=pytest.mark.slow)])
def test_the_process_of_wandb_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    step = SequenceTask.training_step
    killed = []

    def kill(task: Task, batch: Any, index: int) -> Any:
        if not killed and task.global_step >= (1 if stage == "first" else 23):
            killed.extend(wait_for_wandb_cores(os.getpid()))
            for process in killed:
                os.kill(process, signal.SIGKILL)
        return step(task, batch, index)

    monkeypatch.setattr(SequenceTask, "training_step", kill)
    options = [option for option in RUM if option != "logger=none"]
    outcome = invoke(*options, "logger=wandb", f"hydra.run.dir={tmp_path}/run", plot=True)
    wandb.teardown()
    assert killed
    check(outcome, tmp_path / "run", "Weights & Biases: ")


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_a_picture_that_wandb_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb, "Image", out_of_memory)
    options = [option for option in RUM if option != "logger=none"]
    outcome = invoke(*options, "logger=wandb", f"hydra.run.dir={tmp_path}/run", plot=True)
    wandb.teardown()
    check(outcome, tmp_path / "run", "Weights & Biases: no memory is left; metrics.csv has all metrics")


@pytest.mark.slow
def test_all_of_them_at_once(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, script in {
        "nvidia-smi": "exec sleep 600",
        "git": f"""{shutil.which("git")} "$@"; test "$1" = diff && printf 'caf\\351\\n'""",
    }.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    disturbed = clean | {
        "PATH": f"{tools}:{clean['PATH']}",
        "HOME": "/dev/null",  # nothing can be written there, not even by root
        "XDG_CACHE_HOME": str(Path.home() / ".cache"),  # of compiled kernels
        "MATPLOTLIBRC": str(tmp_path),
        "WANDB_API_KEY": "0" * 40,
        "WANDB_BASE_URL": "http://127.0.0.1:9",  # nothing answers
    }
    options = [option for option in RUM if option not in ("logger=none", "trainer.max_steps=24")]
    command = [sys.executable, "-m", "src.train", *options, "trainer.max_steps=2000", "model.backend=reference"]

    directory = tmp_path / "plain"
    subprocess.run([*command, "logger=none", f"hydra.run.dir={directory}"], cwd=ROOT, env=clean, check=True)

    directory = tmp_path / "run"
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen([*command, f"hydra.run.dir={directory}"], cwd=ROOT, env=disturbed, stderr=err)
        killed: set[int] = set()
        while process.poll() is None:
            if (directory / "examples.txt").is_file():  # after the first validation
                for core in set(wandb_cores(process.pid)) - killed:
                    os.kill(core, signal.SIGKILL)
                    killed.add(core)
            time.sleep(0.1)
    said = (tmp_path / "err").read_text(errors="replace")
    assert process.returncode == 0, said
    assert killed
    assert (directory / "DONE").is_file()
    assert (directory / "loss.png").is_file()
    ours, theirs = (
        [line.partition(",")[0] for line in (tmp_path / name / "metrics.csv").read_text().splitlines()]
        for name in ("run", "plain")
    )
    assert ours == theirs
    assert "Traceback" not in said
