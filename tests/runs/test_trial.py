"""Which runs report to a search, and the name of the sweep that a run is a job of."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from gyral.runs import directory, opening, trial


def configure(monkeypatch: pytest.MonkeyPatch, mode: RunMode, **options: Any) -> None:
    """Make Hydra's own configuration that of a run."""
    monkeypatch.setattr(HydraConfig, "initialized", lambda: True)
    monkeypatch.setattr(HydraConfig, "get", lambda: SimpleNamespace(mode=mode, **options))


def test_only_the_trials_of_a_search_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "Reporter", lambda: "reporter")
    for mode, sweeper, expected in (
        (RunMode.MULTIRUN, {"n_trials": 2}, "reporter"),
        (RunMode.MULTIRUN, {"params": {}}, None),
        (RunMode.MULTIRUN, None, None),
        (RunMode.RUN, {"n_trials": 2}, None),
    ):
        configure(monkeypatch, mode, sweeper=sweeper)
        assert trial.reporter() == expected


def test_the_name_of_a_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["threads=1", "task=copy", "~callbacks.progress_bar", "seed=1,2", "task.batch_size=choice(8)"]
    monkeypatch.setattr(sys, "argv", ["train", "-m", *words])
    for mode, folder, expected in (
        (RunMode.RUN, directory.SWEEPS, None),
        (RunMode.MULTIRUN, directory.SWEEPS, "seed=1,2 task=copy task.batch_size=8 threads=1"),
        (RunMode.MULTIRUN, f"{directory.SWEEPS}/mine/first", "mine/first"),
        (RunMode.MULTIRUN, "elsewhere/first", "elsewhere/first"),
        (RunMode.MULTIRUN, "/somewhere/first", "first"),
    ):
        configure(monkeypatch, mode, sweep=SimpleNamespace(dir=folder))
        assert opening.sweep_name() == expected
