"""How long a sweep takes, from its finished runs and from records. Imports no torch."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from gyral.config.roles import PROCESS, key_of, role_of
from gyral.core.errors import UserError
from gyral.runs.directory import BUDGET
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord

RECORDS = Path("results/records")  # of the rows of the tables, in a checkout
REPEATED = ("seed", "threads", "sweep")  # in which jobs differ that take equally long
KINDS = ("experiment", "model", "task", BUDGET)  # in which jobs agree that take about equally long


def finished_runs(directory: Path, jobs: Iterable[Sequence[str]]) -> list[RunRecord]:
    """Return the finished runs in the directory of a sweep, and the records of the rows that its jobs train."""
    rows = {word.partition("=")[2] for job in jobs for word in job if word.startswith("experiment=")}
    folders = [directory, *(RECORDS / row for row in sorted(rows))]
    found = []
    for folder in folders:
        try:
            found += read(folder)[0] if folder.is_dir() else []
        except (UserError, OSError):  # an estimate is worth no error
            continue
    return [record for record in found if record.results]


def unfinished_jobs(jobs: Sequence[Sequence[str]], directory: Path, runs: Sequence[RunRecord]) -> list[Sequence[str]]:
    """Return the jobs that have no finished run in the directory of the sweep."""
    own = (record for record in runs if record.directory.is_relative_to(directory))
    done = {_words(record.overrides.values()) for record in own}
    return [job for job in jobs if _words(job) not in done]


def expected_seconds(jobs: Sequence[Sequence[str]], runs: Sequence[RunRecord]) -> float | None:
    """Return about how long jobs take one after another, None without a finished run that resembles one of them.

    A job takes as long as the mean of the runs with the same options but their seed; without one, of the runs of the
    same model, task and number of steps; without one, of all other jobs.
    """
    equal: dict[frozenset[str], list[float]] = {}
    alike: dict[frozenset[str], list[float]] = {}
    for record in runs:
        seconds = record.metrics.get("seconds_a_step", math.nan) * record.steps
        if math.isfinite(seconds) and seconds > 0:
            words = _words(record.overrides.values())
            equal.setdefault(_without_seed(words), []).append(seconds)
            alike.setdefault(_kind(words), []).append(seconds)
    known = []
    for words in map(_words, jobs):
        found = equal.get(_without_seed(words)) or alike.get(_kind(words))
        if found:
            known.append(fmean(found))
    return fmean(known) * len(jobs) if known else None


def describe_seconds(seconds: float) -> str:
    """Return a duration in one unit: "40 s", "12 min", "3.5 h", "4 days"."""
    for limit, unit, size in ((90, "s", 1), (5400, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            digits = 1 if unit == "h" and seconds < 36_000 else 0
            return f"{max(seconds / size, 1):.{digits}f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def _words(overrides: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in overrides if role_of(word) != PROCESS and key_of(word) != "sweep")


def _without_seed(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in words if key_of(word) not in REPEATED)


def _kind(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in words if key_of(word) in KINDS)
