"""Search by Optuna: trials, their end and their number, going on, pruning, what is refused."""

import csv
import fcntl
import json
import re
import shlex
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from gyral.core.measures import ACCURACY
from gyral.sweeps import optuna as tune
from gyral.sweeps import ownership
from gyral.training import loop
from tests.helpers.launching import accident
from tests.helpers.running import ROOT, SMALL_COPY, Outcome, compose_config, invoke

optuna = pytest.importorskip("optuna")
TrialState = optuna.trial.TrialState

SHORT = (
    "sweep=tune",
    *(option for option in SMALL_COPY if "hidden_size" not in option),
    "model=rnn",
    "optimizer.lr=tag(log,interval(0.001,0.1))",
    "model.cell.hidden_size=range(4,17,4)",
)
QUICK = ("trainer.max_steps=4", "trainer.val_check_interval=2")


def search(directory: Path, *arguments: str, trials: int = 3) -> Outcome:
    return invoke(*SHORT, *arguments, f"hydra.sweeper.n_trials={trials}", f"hydra.sweep.dir={directory}")


def read(directory: Path) -> list[dict[str, str]]:
    with (directory / "trials.csv").open(newline="") as file:
        return list(csv.DictReader(file))


class Resumed(NamedTuple):
    """A search of one trial that was continued to three: its directory, both outputs, and the trials after each."""

    directory: Path
    first: Outcome
    second: Outcome
    once: list[dict[str, str]]
    trials: list[dict[str, str]]
    summary: dict[str, Any]
    kept: bool


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    directory = tmp_path_factory.mktemp("searches") / "resumed"
    first = search(directory, *QUICK, trials=1)
    assert first.status == 0, first.err
    once, times = read(directory), {path: path.stat().st_mtime_ns for path in directory.rglob("DONE")}
    second = search(directory, *QUICK, trials=3)
    assert second.status == 0, second.err
    kept = {path: path.stat().st_mtime_ns for path in times} == times and len(times) == 1
    summary = json.loads((directory / "summary.json").read_text())
    return Resumed(directory, first, second, once, read(directory), summary, kept)


def test_a_search_resumes_with_new_trials_and_prints_importances(resumed: Resumed) -> None:
    assert "model.cell.eta is not an option of this configuration and is not searched" in resumed.first.out
    assert [trial["trial"] for trial in resumed.once] == ["0"]
    assert resumed.kept

    trials, summary, outcome = resumed.trials, resumed.summary, resumed.second
    assert [(trial["trial"], trial["state"]) for trial in trials] == [(str(n), "COMPLETE") for n in range(3)]
    assert len({trial["optimizer.lr"] for trial in trials}) == 3, "a resumed search draws new values"
    for trial in trials:
        done = json.loads((resumed.directory / f"trial_{trial['trial']}" / "DONE").read_text())
        assert done["monitor"] == float(trial["val/loss"])
        assert 4 <= int(trial["model.cell.hidden_size"]) <= 16
        assert 0.001 <= float(trial["optimizer.lr"]) <= 0.1

    best = min(trials, key=lambda trial: float(trial["val/loss"]))
    assert (summary["best"]["trial"], summary["best"]["value"]) == (int(best["trial"]), float(best["val/loss"]))
    assert set(summary["importances"]) == {"optimizer.lr", "model.cell.hidden_size"}
    assert sum(summary["importances"].values()) == pytest.approx(1)
    assert summary["trials"] == {"complete": 3}
    for shown in ("Best trials", "Importance of each option", "Trials: 3 complete", "optimizer.lr"):
        assert shown in outcome.out
    assert f" {float(best['val/loss']):.4g} " in outcome.out
    command = outcome.out.partition("The best: ")[2].strip()
    assert shlex.split(command) == summary["best"]["command"]
    config = compose_config(*shlex.split(command)[3:], hydra_too=True)
    assert str(config.optimizer.lr) == best["optimizer.lr"]
    assert config.hydra.mode is None, "one run, no search"
    assert ACCURACY in tune.measures_of_trials([SimpleNamespace(number=0, user_attrs={})], resumed.directory)
    assert tune.measures_of_trials([SimpleNamespace(number=9, user_attrs={})], resumed.directory) == ()


def test_a_directory_keeps_one_search(resumed: Resumed) -> None:
    directory, before = resumed.directory, read(resumed.directory)
    other = search(directory, *QUICK, "trainer.max_steps=16", trials=9).error
    assert other.startswith(f"hydra.sweep.dir={directory}: holds a search with other options (trainer.max_steps is 4")
    with (directory / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        running = search(directory, *QUICK, trials=9).error
    assert running == f"hydra.sweep.dir={directory}: another search is running there"
    nothing_left = search(directory, *QUICK, trials=len(before))
    assert nothing_left.status == 0
    assert read(directory) == before


def test_a_trial_that_a_released_version_has_left_resumes(resumed: Resumed) -> None:
    directory = resumed.directory
    study, storage = study_of(directory), storage_of(directory)
    params = {**study.trials[0].params, "model.cell.hidden_size": 16}
    study.add_trial(
        optuna.create_trial(state=TrialState.RUNNING, params=params, distributions=study.trials[0].distributions)
    )
    # earlier versions have set no attributes of searches and their trials
    with closing(sqlite3.connect(directory / "study.db")) as database, database:
        database.execute("DELETE FROM trial_user_attributes WHERE key = 'search'")
        database.execute("DELETE FROM study_user_attributes WHERE key LIKE 'search %'")
    outcome = search(directory, *QUICK, trials=4)
    assert outcome.status == 0, outcome.err
    assert [(trial["trial"], trial["state"]) for trial in read(directory)] == [(str(n), "COMPLETE") for n in range(4)]
    assert storage.get_all_trials(1)[3].params == params


def test_the_best_trials_print_numbers_as_reports_do(capsys: pytest.CaptureFixture[str]) -> None:
    summary = {"monitor": "val/accuracy", "importances": {"optimizer.lr": 0.28400001}, "trials": {"complete": 1}}
    best = SimpleNamespace(number=7, value=0.51234567, params={"optimizer.lr": 0.00123456})
    tune.print_summary(summary, [best], [ACCURACY])
    out = capsys.readouterr().out
    assert re.search(r"│ 7 +│ 51\.2 % +│ 0\.00123456 +│", out)
    assert re.search(r"│ optimizer\.lr │ +28\.4 % █+ +│", out)


@pytest.mark.slow
def test_a_stopped_trial_resumes_under_its_number(tmp_path: Path) -> None:
    stopped = accident(11, "SIGINT", tmp_path / "mark")
    assert search(tmp_path / "one", stopped, trials=2).status == 130
    assert not list((tmp_path / "one").rglob("DONE"))
    outcome = search(tmp_path / "one", stopped, trials=2)
    assert outcome.status == 0, outcome.err
    assert outcome.err.count("Resuming from") == 1
    assert search(tmp_path / "whole", stopped, trials=2).status == 0  # the mark is there: nothing happens
    first, second = (read(tmp_path / name) for name in ("one", "whole"))
    assert [trial["state"] for trial in first] == ["COMPLETE", "COMPLETE"]
    assert first[0] == second[0]


@pytest.mark.slow
def test_failing_and_diverging_trials_are_listed_and_the_others_finish(tmp_path: Path) -> None:
    axes = "model.cell.hidden_size=1,4", "optimizer.lr=0.01,1e30", "model.cell.eta=null"
    outcome = search(tmp_path, "model=rum", *axes, trials=8)
    assert outcome.status == 0, outcome.err
    states: dict[Any, set[str]] = {}
    for trial in read(tmp_path):
        key = trial["model.cell.hidden_size"], float(trial["optimizer.lr"])
        states.setdefault(key, set()).add(trial["state"])
        reason = {"1": "must be an integer ≥ 2", "4": "NonFiniteError"}[key[0]]
        assert trial["state"] != "FAIL" or reason in trial["reason"]
    assert states[("4", 0.01)] == {"COMPLETE"}
    for key in set(states) - {("4", 0.01)}:
        assert states[key] == {"FAIL"}
    assert "Failed:" in outcome.err
    assert sum(json.loads((tmp_path / "summary.json").read_text())["trials"].values()) == 8


@pytest.mark.slow
def test_a_search_whose_first_trials_all_fail_stops_early(tmp_path: Path) -> None:
    outcome = search(tmp_path, "model=rum", "model.cell.hidden_size=1", trials=20)
    assert outcome.status == 1
    assert outcome.err.splitlines()[-1].startswith("error: none of 5 trials succeeded")
    assert [trial["state"] for trial in read(tmp_path)] == ["FAIL"] * 5


def test_failed_trials_are_run_again_by_the_same_command_also_where_the_search_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, moved = tmp_path / "own", tmp_path / "moved?"  # a sign that has a meaning in URLs
    with monkeypatch.context() as patch:
        patch.setattr(tune, "MAX_INITIAL_FAILURES", 1)
        patch.setattr(loop, "summarize", lambda _: {"monitor": None, "parameters": 1, "steps": 1})
        assert search(own, *QUICK, trials=1).status == 1
    (trial,) = read(own)
    assert (trial["state"], trial["reason"]) == ("FAIL", "val/loss is None, which is not a finite number")
    own.rename(moved)
    (moved / "trial_0" / "DONE").unlink()  # written before the value was found to be missing
    outcome = search(moved, *QUICK, trials=1)
    assert outcome.status == 0, outcome.err
    assert "Failed trials are run again: 0" in outcome.out
    (again,) = read(moved)
    assert (again["state"], again["reason"], again["optimizer.lr"]) == ("COMPLETE", "", trial["optimizer.lr"])


@pytest.mark.slow
def test_worse_trials_are_pruned_by_the_tasks_monitor(tmp_path: Path) -> None:
    arguments = (
        *("optimizer.lr=0.03,1e-9", "model.cell.hidden_size=8", "hydra.sweeper.pruner.n_startup_trials=1"),
        *("hydra.sweeper.pruner._target_=optuna.pruners.PercentilePruner", "+hydra.sweeper.pruner.percentile=1.0"),
    )
    outcome = search(tmp_path, *arguments, trials=6)
    assert outcome.status == 0, outcome.err
    trials = read(tmp_path)
    pruned = [trial for trial in trials if trial["state"] == "PRUNED"]
    assert pruned
    assert {trial["optimizer.lr"] for trial in pruned} == {"1e-09"}
    for trial in pruned:
        directory = tmp_path / f"trial_{trial['trial']}"
        assert json.loads((directory / "DONE").read_text())["steps"] == 8, "at the first validation"
        assert trial["val/loss"]
    assert f"{len(pruned)} pruned" in outcome.out
    assert json.loads((tmp_path / "summary.json").read_text())["best"]["params"] == {"optimizer.lr": "0.03"}

    # a run that is taken out of its search is a run as any other
    assert invoke(f"resume={tmp_path / 'trial_0'}").status == 0


@pytest.mark.named(
    "arguments6-hydra.sweeper.storage=nonsense: cannot be used",
    "arguments7-hydra.sweeper.sampler=optuna.samplers.None: Error",
    "arguments8-hydra.sweeper.pruner=optuna.pruners.MedianPruner: Error",
    "arguments10-sweep=tune: nothing to search",
)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["hydra.sweeper.n_trials=0"], "hydra.sweeper.n_trials=0: must be an integer ≥ 1"),
        (["hydra.sweeper.trials=3"], "no such option; did you mean hydra.sweeper.n_trials?"),
        (["optimizer.lr=interval(1,0)"], "optimizer.lr=interval(1,0): cannot be searched"),
        (["optimizer.lr=tag(log,interval(0,1))"], "optimizer.lr=tag(log,interval(0,1)): cannot be searched"),
        (["optimizer.rate=interval(0,1)"], "optimizer.rate: no such option; allowed: decay, dynamics_lr, lr,"),
        (["task=copy,nothing"], "task=nothing: must be one of"),
        (["hydra.sweeper.storage=nonsense"], "hydra.sweeper.storage=nonsense: cannot be used"),
        (["hydra.sweeper.sampler._target_=optuna.samplers.None"], "hydra.sweeper.sampler=optuna.samplers.None: Error"),
        (["hydra.sweeper.pruner.n_startup_trials=-1"], "hydra.sweeper.pruner=optuna.pruners.MedianPruner: Error"),
        (["launcher=slurm"], "hydra.launcher.n_jobs=null: must be a number of simultaneous trials"),
        (["optimizer.lr=0.1", "model.cell.hidden_size=8"], "sweep=tune: nothing to search"),
    ],
)
def test_unsupported_searches_are_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    outcome = invoke(*SHORT, *arguments, f"hydra.sweep.dir={tmp_path}/search")
    assert said in outcome.error
    assert not list(tmp_path.rglob("trial_*"))


def test_a_search_needs_optuna(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    error = search(tmp_path / "search").error
    assert error == "sweep=tune: needs the package optuna: pip install 'gyral[tune]'"


def test_an_interval_needs_a_search(tmp_path: Path) -> None:
    error = invoke("-m", "optimizer.lr=interval(0,1)", f"hydra.sweep.dir={tmp_path}").error
    assert error == "optimizer.lr=interval(0,1): must be a list of values; sweep=tune searches intervals"


@pytest.mark.slow
def test_killed_parallel_trials_resume(tmp_path: Path) -> None:
    arguments = [*SHORT, "trainer.max_steps=240", "launcher=joblib", "hydra.launcher.n_jobs=2"]
    command = [sys.executable, "-m", "src.train", *arguments, "hydra.sweeper.n_trials=6", f"hydra.sweep.dir={tmp_path}"]
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, **streams) as first:
        deadline = time.monotonic() + 120
        while len(list(tmp_path.rglob("DONE"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.kill()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert again.returncode == 0, again.stderr
    trials = read(tmp_path)
    assert [trial["trial"] for trial in trials] == list("012345")
    assert {trial["state"] for trial in trials} <= {"COMPLETE", "PRUNED"}
    assert len(list(tmp_path.rglob("DONE"))) == 6


def storage_of(directory: Path) -> Any:
    return optuna.storages.RDBStorage(f"sqlite:///{directory}/study.db")


def study_of(directory: Path) -> Any:
    return optuna.load_study(study_name=str(directory), storage=storage_of(directory))


def test_a_trial_of_another_search_is_taken_only_when_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other search is another directory with the same study; its mark is not renewed, because it is not running."""
    storage = f"hydra.sweeper.storage=sqlite:///{tmp_path}/study.db", "hydra.sweeper.study=shared"
    assert search(tmp_path / "other", *QUICK, *storage, trials=1).status == 0
    study = optuna.load_study(study_name="shared", storage=f"sqlite:///{tmp_path}/study.db")
    trial = study.ask(study.trials[0].distributions)
    trial.set_user_attr(ownership.MARK, study.trials[0].user_attrs[ownership.MARK])
    directory = tmp_path / "other" / "trial_1"
    directory.mkdir()
    waited = [0.0]
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a job of SLURM that has outlived its search

        def sleep(seconds: float) -> None:
            waited.append(waited[-1] + seconds)
            if waited[-1] >= 2 * ownership.GRACE:
                fcntl.flock(lock, fcntl.LOCK_UN)

        monkeypatch.setattr(tune, "POLL", ownership.GRACE / 2)
        monkeypatch.setattr(tune, "time", SimpleNamespace(sleep=sleep))
        monkeypatch.setattr(ownership, "time", SimpleNamespace(monotonic=lambda: waited[-1]))
        outcome = search(tmp_path / "own", *QUICK, *storage, trials=2)
    assert outcome.status == 0, outcome.err
    assert waited[-1] == 2 * ownership.GRACE
    assert "Waiting for trials that other searches run: 1 " in outcome.out + outcome.err
    assert "The search of trial 1 has ended; the trial is continued" in outcome.out + outcome.err
    assert [trial["state"] for trial in read(tmp_path / "own")] == ["COMPLETE"] * 2
    assert (directory / "DONE").exists()
    assert not list((tmp_path / "own").glob("trial_*"))


def test_a_driver_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    error = search(tmp_path, "hydra.sweeper.storage=postgresql+psycopg://me:secret@host/db").error
    assert error == (
        "hydra.sweeper.storage=postgresql+psycopg://me:***@host/db: "
        "needs the package psycopg: pip install 'gyral[databases]'"
    )


@pytest.mark.parametrize(
    "url", ["postgresql+psycopg://me:sec,ret@host/db", "x://me:secret@h:y/db", "a://b:sec{ret@c/d"]
)
def test_no_error_shows_a_password(url: str, tmp_path: Path) -> None:
    assert "ret@" not in search(tmp_path, f"hydra.sweeper.storage={url}").error
