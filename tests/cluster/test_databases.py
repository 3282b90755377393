"""Searches that share a study in a database: SQLite, PostgreSQL, MariaDB."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from gyral.runs.metrics_file import read_rows
from tests.helpers.engines import free_port, wait_until
from tests.helpers.engines.databases import IN_URL, PASSWORD, mariadb, postgresql, sqlite
from tests.helpers.running import ROOT, SMALL_COPY, spawn

pytest.importorskip("optuna")

STEPS = 120
SEARCH = (
    *("sweep=tune", *SMALL_COPY, "model=rnn", f"trainer.max_steps={STEPS}"),
    *("optimizer.lr=tag(log,interval(0.001,0.1))", "model.cell.hidden_size=range(4,17,4)", "hydra.sweeper.pruner=null"),
)
SERVERS = [
    postgresql,
    pytest.param(sqlite, marks=pytest.mark.slow),
    pytest.param(mariadb, marks=pytest.mark.slow),
]
Database = Callable[[], AbstractContextManager[str]]


@contextmanager
def searching(folder: Path, *arguments: str, number: int = 0) -> Iterator[subprocess.Popen[bytes]]:
    """Start a search in a working directory; its output is in out<number>."""
    folder.mkdir(exist_ok=True)
    words = [word for word in SEARCH if not word.startswith("model.cell.hidden_size=8")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
    with (folder / f"out{number}").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "gyral", "train", *words, *arguments], cwd=folder, env=environment, stdout=out,
            stderr=out,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def trials(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.rglob("trials.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def done(folder: Path) -> list[str]:
    return [path.parent.name for path in folder.rglob("DONE")]


def training(folder: Path) -> list[Path]:
    """Return the run directories in which a search trains now."""
    return [path.parents[1] for path in folder.rglob("last.ckpt") if not (path.parents[1] / "DONE").exists()]


def assert_all_trained_once(folder: Path, count: int) -> None:
    """Check that there are so many trials with results, each in one directory alone, and that each step has one row."""
    assert sorted(done(folder)) == sorted(f"trial_{number}" for number in range(count))
    for path in folder.rglob("metrics.csv"):
        _, rows = read_rows(path)
        assert [int(row["step"]) for row in rows if row["train/loss"]] == list(range(1, STEPS, 2))
    path = next(folder.rglob("trials.csv"))
    with path.open(newline="") as file:
        assert len({trial["optimizer.lr"] for trial in csv.DictReader(file)}) == count, (
            "no search repeats the values of another"
        )


def assert_no_password(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert PASSWORD.encode() not in content, path
            assert IN_URL.encode() not in content, path


@pytest.mark.parametrize("database", SERVERS)
def test_two_searches_share_a_study_and_one_is_killed_and_started_again(database: Database, tmp_path: Path) -> None:
    with database() as url:
        words = f"hydra.sweeper.storage={url}", "hydra.sweeper.n_trials=4"
        one, other = tmp_path / "one", tmp_path / "other"
        with searching(one, *words) as first, searching(other, *words) as second:
            wait_until(lambda: done(tmp_path) and training(one), 180, "a trial is done and the first search trains")
            first.send_signal(signal.SIGKILL)
            first.wait()
            with searching(one, *words, number=1) as again:
                assert again.wait(300) == 0, (one / "out1").read_text()
                assert second.wait(300) == 0, (other / "out0").read_text()
        assert "Resuming" in (one / "out1").read_text()
        for folder in (one, other):
            assert [trial["trial"] for trial in trials(folder)] == [str(number) for number in range(4)]
            assert {trial["state"] for trial in trials(folder)} == {"COMPLETE"}
        assert_all_trained_once(tmp_path, 4)
        assert_no_password(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("database", [sqlite, postgresql, mariadb])
def test_a_search_continues_the_trial_of_one_that_was_killed(database: Database, tmp_path: Path) -> None:
    with database() as url:
        words = f"hydra.sweeper.storage={url}", "hydra.sweeper.n_trials=4", "logger=wandb"
        one, other = tmp_path / "one", tmp_path / "other"
        with searching(one, *words) as first, searching(other, *words) as second:
            wait_until(lambda: training(one) and training(other), 180, "both searches train")
            first.send_signal(signal.SIGKILL)
            assert second.wait(300) == 0, (other / "out0").read_text()
        out = (other / "out0").read_text()
        assert "Waiting for trials that other searches run: " in out
        assert "The search of trial" in out
        assert "Resuming from" in out
        assert_all_trained_once(tmp_path, 4)
        assert_no_password(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("database", [sqlite, postgresql, mariadb])
def test_four_searches_that_start_at_once_run_as_many_trials_as_asked(database: Database, tmp_path: Path) -> None:
    with database() as url:
        words = f"hydra.sweeper.storage={url}", "hydra.sweeper.n_trials=5", f"trainer.max_steps={STEPS}"
        folders = [tmp_path / name for name in "abcd"]
        started = [searching(folder, *words) for folder in folders]
        processes = [search.__enter__() for search in started]
        try:
            for folder, process in zip(folders, processes, strict=True):
                assert process.wait(300) == 0, (folder / "out0").read_text()
        finally:
            for search in started:
                search.__exit__(None, None, None)
        assert {len(trials(folder)) for folder in folders if any(folder.rglob("trials.csv"))} == {5}
        assert_all_trained_once(tmp_path, 5)


def refuse(url: str, folder: Path, **environment: str | None) -> str:
    """Return the error of a search, of one line, which shows no password."""
    words = [*SEARCH, "hydra.sweeper.n_trials=1", f"hydra.sweep.dir={folder / 'search'}"]
    outcome = spawn("-m", "src.train", *words, f"hydra.sweeper.storage={url}", **environment)
    assert outcome.status == 1
    assert "secret" not in outcome.err + outcome.out
    if not environment:
        assert len(outcome.err.strip().splitlines()) == 1
    assert_no_password(folder)
    return outcome.err


def test_a_server_that_refuses_or_does_not_answer_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    nobody = f"postgresql+psycopg://gyral:secret@127.0.0.1:{free_port()}/postgres"
    error = refuse(nobody, tmp_path)
    assert error.startswith(f"error: hydra.sweeper.storage={nobody.replace('secret', '***')}: cannot be used: ")
    assert "refused" in error
    assert "Traceback" in refuse(nobody, tmp_path, HYDRA_FULL_ERROR="1")


@pytest.mark.slow
@pytest.mark.parametrize("database", [postgresql, mariadb])
def test_a_wrong_password_is_one_line(database: Database, tmp_path: Path) -> None:
    with database() as url:
        assert ":***@127.0.0.1" in refuse(url.replace(IN_URL, "secret"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["PostgreSQL: URL", "PostgreSQL: PGPASSWORD", "PostgreSQL: file", "MariaDB: file"])
def test_a_password_need_not_be_on_the_command_line(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (postgresql if way.startswith("PostgreSQL") else mariadb)() as url:
        without = url.replace(f":{IN_URL}@", "@")
        file = tmp_path / "password"
        file.touch(0o600)
        if way == "PostgreSQL: PGPASSWORD":
            monkeypatch.setenv("PGPASSWORD", PASSWORD)
        elif way == "PostgreSQL: file":
            file.write_text(f"*:*:*:gyral:{PASSWORD}")
            monkeypatch.setenv("PGPASSFILE", str(file))
        elif way == "MariaDB: file":
            file.write_text(f"[client]\npassword = {PASSWORD}\n")
            without += f"?read_default_file={file}"
        monkeypatch.setenv("OPTUNA_STORAGE", url if way == "PostgreSQL: URL" else without)
        launcher = ("launcher=slurm", "hydra.launcher.cluster=local", "hydra.launcher.n_jobs=1")
        words = ("hydra.sweeper.storage=${oc.env:OPTUNA_STORAGE}", "hydra.sweeper.n_trials=2", *launcher)
        with searching(tmp_path / "own", *words) as search:
            assert search.wait(300) == 0, (tmp_path / "own" / "out0").read_text()
        assert_all_trained_once(tmp_path / "own", 2)
        assert_no_password(tmp_path / "own")
