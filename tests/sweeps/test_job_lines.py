"""The lines in the terminal that show the running jobs of a sweep."""

import io
import os
import sys
import time
from pathlib import Path

import pytest

from gyral.runs.directory import LOG
from gyral.sweeps.job_lines import SHOWN, read_progress, show_running_jobs

START = "[2026-01-01 00:00:00,000][gyral.training.callbacks.progress_bar][INFO] "


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_each_running_job_has_a_line_with_its_last_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm", "COLUMNS": "90", "LINES": "40"}.items():
        monkeypatch.setenv(name, value)
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    jobs = {f"seed={number}": tmp_path / str(number) for number in range(SHOWN + 3)}
    for directory in jobs.values():
        directory.mkdir()
    done = [f"{START}step {step:,} of 4,000: val loss {step / 8e3}, 0:0{step % 7} left\n" for step in (1000, 2000)]
    (jobs["seed=0"] / LOG).write_text("x" * 5000 + "".join(done))
    (jobs["seed=1"] / LOG).write_bytes(b"\xff\x1b[31m")  # damaged
    with show_running_jobs(lambda: jobs, lambda: "3 of 9 jobs have ended"):
        print("a line of the sweep", file=sys.stderr)
        time.sleep(0.05)
    shown = screen.getvalue()
    assert "3 of 9 jobs have ended" in shown
    assert "val loss 0.25, 0:05 left" in shown
    assert "starts" in shown
    assert "seed=11 " in shown
    assert "seed=12 " not in shown
    assert "and 3 others" in shown
    assert "a line of the sweep" in shown


def test_a_run_before_its_first_validation_has_no_progress(tmp_path: Path) -> None:
    assert read_progress(tmp_path) is None
    (tmp_path / LOG).write_text(f"{START}RUMCell runs on the fused backend\n")
    assert read_progress(tmp_path) is None
    (tmp_path / LOG).unlink()
    os.mkfifo(tmp_path / LOG)  # from which reading would wait for ever
    assert read_progress(tmp_path) is None


def test_nothing_is_shown_outside_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_running_jobs(dict, lambda: "never"):
        pass
    assert capsys.readouterr() == ("", "")
