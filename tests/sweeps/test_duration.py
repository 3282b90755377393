"""How long a sweep takes, as its first line says, and the lines after its jobs."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gyral.core.pace import Pace
from gyral.runs.run_record import RunRecord
from gyral.sweeps import duration
from gyral.sweeps.duration import Durations, describe_seconds, unfinished_jobs


def record(place: str, *words: str, seconds: float | None = 0.1, steps: int = 100) -> RunRecord:
    overrides = {word.partition("=")[0]: word for word in words}
    results = {"steps": float(steps)} | ({} if seconds is None else {"seconds_a_step": seconds})
    fields: dict[str, Any] = {"reason": None, "running": False, "read_log": None, "provenance": None}
    return RunRecord(place=place, config={}, overrides=overrides, results=results, steps=steps, **fields)


JOBS = [("model=gru", "seed=1"), ("model=gru", "seed=2"), ("model=lstm", "seed=1")]

Job = tuple[str, ...]
MIXED: list[Job] = [
    (f"model={model}", f"task={task}", f"seed={seed}")
    for model in ("gru", "rum")
    for task in ("copy", "recall")
    for seed in (1, 2)
]
STEPS = 1000
# seconds a step, of a validation and of the test; the jobs have ten validations
TIMES = {
    ("model=gru", "task=copy"): (0.01, 0.5, 1.0),
    ("model=gru", "task=recall"): (0.02, 6.0, 12.0),
    ("model=rum", "task=copy"): (0.05, 1.0, 2.0),
    ("model=rum", "task=recall"): (0.2, 12.0, 24.0),
}


class Machine:
    """A machine with its own clock, on which jobs take `TIMES`, and a start that the measurement does not see."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, slower: float = 1.0, at_once: int = 1) -> None:
        self.directory, self.slower, self.at_once = directory, slower, at_once
        self.clock = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
        self.measured: list[Job] = []
        monkeypatch.setattr(duration.time, "time", lambda: self.clock)
        monkeypatch.setattr(duration.time, "monotonic", lambda: self.clock)

    def seconds(self, job: Sequence[str]) -> float:
        step, validation, test = TIMES[job[0], job[1]]
        return 3.0 + self.slower * (STEPS * step + 10 * validation + test)

    def measure(self, job: Sequence[str], limit: float) -> Pace:
        self.measured.append(tuple(job))
        self.clock += (spent := 12 * TIMES[job[0], job[1]][0])
        step, validation, test = TIMES[job[0], job[1]]
        return Pace(1.0 + STEPS * step + 10 * validation + test, 10, spent)

    def start(self, job: Job) -> Path:
        """Start the run of a job, and return its directory."""
        folder = self.directory / "_".join(job)
        folder.mkdir(parents=True)
        started = datetime.fromtimestamp(self.clock, UTC).isoformat(timespec="seconds")
        (folder / "provenance.json").write_text(json.dumps({"started": started}))
        results = {"test/loss": 1.0, "test/baseline": 1.0, "parameters": 1, "steps": STEPS, "monitor": 1.0}
        results["seconds_a_step"] = self.slower * TIMES[job[0], job[1]][0]
        (folder / "DONE").write_text(json.dumps(results))
        return folder

    def run(self, jobs: list[Job], durations: Durations) -> Iterable[tuple[float, str | None]]:
        """Run jobs; yield after each the time of its end and what is said then."""
        waiting, running = list(jobs), dict[Job, float]()
        folders = {}
        durations.plan(jobs, len(jobs))
        while waiting or running:
            while waiting and len(running) < self.at_once:
                job = waiting.pop(0)
                durations.begin(job)
                folders[job] = self.start(job)
                running[job] = self.clock + self.seconds(job)
            job = min(running, key=lambda one: running[one])
            self.clock = running.pop(job)
            yield self.clock, durations.end(job, folders[job])


def left_in(said: str | None) -> float:
    """Return the seconds in "The other 6 jobs take about 12 min …"."""
    assert said is not None
    number, unit = said.partition("about ")[2].split()[:2]
    return float(number) * {"s": 1, "min": 60, "h": 3600}[unit]


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("slower", [1.0, 1.7])
def test_a_mixed_sweep_knows_its_time_from_its_start(
    slower: float, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch, slower, at_once)
    durations = Durations(at_once)
    durations.measure(MIXED, machine.measure)
    assert len(machine.measured) == 4, "one job of each kind"
    expected, started = durations.seconds(MIXED), machine.clock
    assert expected is not None
    ends = list(machine.run(MIXED, durations))
    whole = ends[-1][0] - started
    assert whole / 1.5 < slower * expected < whole * 1.5
    for number in (1, 2, 4):
        end, said = ends[number - 1]
        left = ends[-1][0] - end
        assert left / 1.5 < left_in(said) < left * 1.5, f"after job {number}"
    assert [number for number, (_, said) in enumerate(ends, 1) if said] == [1, 2, 4]  # 8 is the last


def test_without_measured_steps_jobs_take_as_long_as_those_of_their_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, durations = Machine(tmp_path, monkeypatch), Durations()
    jobs = [MIXED[0], MIXED[6], MIXED[1], MIXED[7]]
    assert durations.seconds(jobs) is None
    ends = list(machine.run(jobs, durations))
    assert left_in(ends[1][1]) == pytest.approx(machine.seconds(jobs[2]) + machine.seconds(jobs[3]), rel=0.1)


def test_a_job_that_was_resumed_tells_nothing_about_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, durations = Machine(tmp_path, monkeypatch), Durations()
    durations.plan(MIXED[6:], 2)
    folder = machine.start(MIXED[6])
    machine.clock += 3600
    durations.begin(MIXED[6])
    machine.clock += 60
    assert durations.end(MIXED[6], folder) is None
    assert durations.seconds(MIXED[7:]) is None


def test_measuring_takes_20_seconds_or_2_percent_and_says_what_is_extrapolated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, durations = Machine(tmp_path, monkeypatch), Durations()
    monkeypatch.setattr("tests.sweeps.test_duration.TIMES", dict.fromkeys(TIMES, (1.0, 1.0, 1.0)))
    durations.measure(MIXED, machine.measure)
    assert machine.measured == [MIXED[0], MIXED[6]], "12 s each, those that differ the most"
    said = "on this machine, measured on 10 steps of 2 of 4 kinds of jobs, the others extrapolated"
    assert durations.describe(MIXED) == f"about 2.2 h {said}"
    assert durations.describe(MIXED[:2]) == "about 34 min on this machine, measured on 10 steps of 1 kind of job"

    monkeypatch.setattr("tests.sweeps.test_duration.TIMES", dict.fromkeys(TIMES, (0.2, 0.0, 0.0)))
    monkeypatch.setattr("tests.sweeps.test_duration.STEPS", 20)
    machine.measured.clear()
    Durations().measure(MIXED, machine.measure)
    assert len(machine.measured) == 1, "the sweep takes half a minute"


def test_jobs_that_cannot_be_measured_are_left_to_the_others() -> None:
    durations = Durations()
    durations.measure(MIXED, lambda job, seconds: None)
    assert durations.describe(MIXED) is None
    paces = iter([Pace(100.0, 10, 0.0), None, None, None])
    durations.measure(MIXED, lambda job, seconds: next(paces))
    assert durations.seconds(MIXED) == pytest.approx(800)


def test_the_options_of_the_optimizer_make_no_kind_of_job() -> None:
    jobs = [("model=gru", f"optimizer.lr={rate}", f"seed={seed}") for rate in (0.1, 0.01) for seed in (1, 2)]
    measured = []

    def measure(job: Sequence[str], seconds: float) -> Pace:
        measured.append(job)
        return Pace(100.0, 10, 0.0)

    durations = Durations(at_once=2)
    durations.measure(jobs, measure)
    assert measured == [jobs[0]]
    said = "about 3 min with 2 at a time on this machine, measured on 10 steps of 1 kind of job"
    assert (durations.seconds(jobs), durations.describe(jobs)) == (200.0, said)


def expected_seconds(jobs: Sequence[Job], runs: list[RunRecord]) -> float | None:
    durations = Durations()
    durations.expect(runs)
    return durations.seconds(jobs)


def test_a_job_takes_as_long_as_the_runs_that_differ_in_seed_and_optimizer() -> None:
    runs = [record("a", "model=gru", "seed=7"), record("b", "model=gru", "optimizer.lr=0.2", "seed=8", seconds=0.3)]
    assert expected_seconds(JOBS[:2], runs) == pytest.approx(40)
    assert expected_seconds(JOBS, runs) == pytest.approx(60)  # as long as the others
    assert expected_seconds(JOBS, [*runs, record("c", "model=lstm", "seed=9", seconds=1.0)]) == pytest.approx(140)
    others = [record("a", "model=gru", "trainer.max_steps=9"), record("b", "model=gru", seconds=None)]
    assert [expected_seconds(JOBS[:2], [other]) for other in others] == [None, None]


@pytest.mark.parametrize(
    ("at_once", "text"), [(1, "40 s"), (2, "20 s with 2 at a time"), (None, "40 s one after another")]
)
def test_earlier_runs_say_how_long_the_steps_take(at_once: int | None, text: str) -> None:
    durations = Durations(at_once)
    assert durations.describe(JOBS) is None
    durations.expect([record("a", "model=gru", "seed=7", seconds=0.2)])
    assert durations.describe(JOBS[:2]) == f"about {text} by the steps of earlier runs"


def test_finished_jobs_are_not_counted() -> None:
    runs = [record("sweep/gru/1", "seed=1", "model=gru", "logger=none"), record("elsewhere", *JOBS[2])]
    assert unfinished_jobs(JOBS, Path("sweep"), runs) == JOBS[1:]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (89, "89 s"), (91, "2 min"), (5000, "83 min"), (9000, "2.5 h"), (90_000, "25 h"), (2e5, "2 days")],
)
def test_a_duration_has_one_unit(seconds: float, text: str) -> None:
    assert describe_seconds(seconds) == text
