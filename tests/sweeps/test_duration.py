"""How long a sweep takes, as its first line says."""

from pathlib import Path
from typing import Any

import pytest

from gyral.runs.run_record import RunRecord
from gyral.sweeps.duration import describe_seconds, expected_seconds, unfinished_jobs


def record(place: str, *words: str, seconds: float | None = 0.1, steps: int = 100) -> RunRecord:
    overrides = {word.partition("=")[0]: word for word in words}
    results = {"steps": float(steps)} | ({} if seconds is None else {"seconds_a_step": seconds})
    fields: dict[str, Any] = {"reason": None, "running": False, "read_log": None, "provenance": None}
    return RunRecord(place=place, config={}, overrides=overrides, results=results, steps=steps, **fields)


JOBS = [("model=gru", "seed=1"), ("model=gru", "seed=2"), ("model=lstm", "seed=1")]


def test_a_job_takes_as_long_as_the_runs_with_other_seeds() -> None:
    runs = [record("a", "model=gru", "seed=7"), record("b", "model=gru", "seed=8", seconds=0.3)]
    assert expected_seconds(JOBS[:2], runs) == pytest.approx(40)
    assert expected_seconds(JOBS, runs) == pytest.approx(60)  # as long as the others
    assert expected_seconds(JOBS, [*runs, record("c", "model=lstm", "seed=9", seconds=1.0)]) == pytest.approx(140)


def test_runs_with_other_options_of_the_same_model_and_length_are_the_next_best() -> None:
    jobs = [("model=gru", "optimizer.lr=0.1", "seed=1")]
    assert expected_seconds(jobs, [record("a", "model=gru", "optimizer.lr=0.2", "seed=1")]) == pytest.approx(10)
    assert expected_seconds(jobs, [record("a", "model=gru", "trainer.max_steps=9", "seed=1")]) is None
    assert expected_seconds(jobs, [record("a", "model=gru", "seed=1", seconds=None)]) is None
    assert expected_seconds(jobs, []) is None


def test_finished_jobs_are_not_counted() -> None:
    runs = [record("sweep/gru/1", "seed=1", "model=gru", "logger=none"), record("elsewhere", *JOBS[2])]
    assert unfinished_jobs(JOBS, Path("sweep"), runs) == JOBS[1:]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (91, "2 min"), (5000, "83 min"), (9000, "2.5 h"), (90_000, "25 h"), (2e5, "2 days")],
)
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert describe_seconds(seconds) == text
