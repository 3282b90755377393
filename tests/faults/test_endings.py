"""Signals after the last step of a run, and writers of one file: nothing is lost, and no temporary file is left."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gyral import train as train_command
from gyral.core import signals
from gyral.core.files import replace_when_written
from gyral.figures import loss_curve
from gyral.plotting import style
from gyral.runs.directory import Run
from tests.helpers.attacks import Attack
from tests.helpers.running import SMALL_COPY, invoke

RUN = (*SMALL_COPY, "model=rnn", "trainer.max_steps=4", "trainer.val_check_interval=4", "hydra.run.dir=run")


def before(function: Callable[..., Any], send: Callable[[], None]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        send()
        return function(*arguments, **options)

    return run


def after(function: Callable[..., Any], send: Callable[[], None]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        found = function(*arguments, **options)
        send()
        return found

    return run


def while_written(replace: Callable[..., Any], send: Callable[[], None]) -> Callable[..., Any]:
    """Return a function that writes a temporary file and gets the signal before it has its name."""
    return lambda path, write: replace(path, after(write, send))


# By when the signal arrives: the function that gets it, and how.
MOMENTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "DONE is written": (Run, "finish", after),
    "the plot begins": (loss_curve, "plot_losses", before),
    "the picture is a temporary file": (style, "replace_when_written", while_written),
    "the plot has ended": (loss_curve, "plot_losses", after),
    "results are printed": (train_command, "print_results", before),
    "commands are printed": (train_command, "print_next_commands", before),
}
CASES = list(itertools.product(MOMENTS, signals.SIGNALS))


@pytest.mark.attacks(sampled=1, whole=len(CASES))
def test_a_signal_after_the_last_step_ends_no_run_that_is_done(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment, number = CASES[(attack.number * 7 + 10) % len(CASES)]
    place, name, when = MOMENTS[moment]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(place, name, when(getattr(place, name), lambda: os.kill(os.getpid(), number)))
    outcome = invoke(*RUN, plot=True)
    where = f"{number.name} when {moment}: {outcome}"
    assert outcome.status == 0, where
    assert outcome.handlers_put_back, where
    assert "The run is DONE, and ends; press Ctrl-C again to stop immediately." in outcome.err, where
    assert "run directory: run" in outcome.out, where
    assert "Next:" in outcome.out, where
    assert {"DONE", "loss.png"} <= {path.name for path in Path("run").iterdir()}, where
    assert not list(Path("run").rglob("*.tmp")), where
    attack.record("DONE")


def test_a_second_interrupt_after_the_last_step_says_that_the_run_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt_twice() -> None:
        monkeypatch.setattr(signals, "SECOND", 0.0)
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            signals.time.sleep(0.05)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loss_curve, "plot_losses", before(lambda _: None, interrupt_twice))
    outcome = invoke(*RUN, plot=True)
    assert outcome.status == 130, outcome
    assert "Stopped after the end: the run in run is DONE" in outcome.err, outcome


@pytest.mark.parametrize("end", ["sys.exit(130)", "raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGINT)"])
def test_the_end_of_a_process_leaves_no_temporary_file_of_a_thread(end: str, tmp_path: Path) -> None:
    code = f"""
        import os, signal, sys, threading, time
        from pathlib import Path
        from gyral.core.files import replace_when_written

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background lets children ignore it
        started = threading.Event()

        def write(temporary):
            temporary.write_text("half")
            started.set()
            time.sleep(60)

        threading.Thread(target=replace_when_written, args=(Path("loss.png"), write), daemon=True).start()
        started.wait()
        assert list(Path().glob("loss.png.*.tmp"))
        {end}
        time.sleep(60)
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode in (130, -signal.SIGINT), ended
    assert list(tmp_path.iterdir()) == []


def test_processes_that_write_the_same_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Such as two sweeps that are started in the same directory at the same time."""
    path, texts, both = tmp_path / "multirun.yaml", {"first", "second"}, threading.Barrier(2)

    def write_at_the_same_time(text: str) -> None:
        def write(temporary: Path) -> None:
            both.wait(timeout=60)
            temporary.write_text(text, encoding="utf-8")
            both.wait(timeout=60)

        replace_when_written(path, write)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write_at_the_same_time, texts))
    assert path.read_text(encoding="utf-8") in texts
    assert list(tmp_path.iterdir()) == [path]
