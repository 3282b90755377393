"""How long a sweep takes, from a few measured steps, from its finished jobs and from earlier runs. Imports no torch."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import fmean

from gyral.config.roles import PROCESS, key_of, role_of
from gyral.core.errors import UserError
from gyral.core.measures import is_number
from gyral.core.pace import Pace
from gyral.runs.provenance import read_provenance
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord

RECORDS = Path("results/records")  # of the rows of the tables, in a checkout
REPEATED = ("seed", "threads", "sweep")  # in which jobs differ that take equally long
UPDATES = ("optimizer.", "scheduler.")  # options that change no time of a step
LIMIT = 20.0  # seconds within which the jobs of a sweep are measured
SHARE, SHORTEST = 0.02, 2.0  # of the sweep's time, and seconds: measuring takes no longer than the larger of them
WORTH = 1000  # steps of a sweep from which it is worth measuring some
LONG = 60.0  # seconds from which it is worth a line how long the other jobs take

Words = frozenset[str]


class Durations:
    """How long the jobs of a sweep take.

    A job takes as long as the finished jobs of its kind, that is with the same options but the seed and those of
    optimizer and schedule. Without one, it takes what is expected of its kind, times the factor by which finished jobs
    took longer than expected, or else as long as the others on average.

    Args:
        at_once: number of jobs that run at the same time on this machine, None if it is not known.

    Attributes:
        done: the jobs that were DONE before the sweep.
        expected: seconds of a job of each kind, from measured steps or from earlier runs.
        measured: number of measured steps of each kind.
    """

    def __init__(self, at_once: int | None = 1) -> None:
        self.at_once = at_once
        self.done: set[Words] = set()
        self.expected: dict[Words, float] = {}
        self.measured: dict[Words, int] = {}
        self._left: dict[Words, Sequence[str]] = {}
        self._unknown = 0  # number of jobs to come whose overrides are not known yet
        self._trained = 0  # number of jobs that have finished
        self._begun: dict[Words, float] = {}
        self._taken: dict[Words, list[float]] = {}  # seconds of finished jobs by kind

    def measure(
        self,
        jobs: Sequence[Sequence[str]],
        measure: Callable[[Sequence[str], float], Pace | None],
    ) -> None:
        """Measure each kind of job, as far as `LIMIT` and `SHARE` allow; others take as long as the most similar kind.

        Args:
            jobs: the overrides of the jobs.
            measure: returns the pace of a job with overrides, within about so many seconds; None if it has none.
        """
        kinds: dict[Words, Sequence[str]] = {}
        for job in jobs:
            kinds.setdefault(kind_of(job), job)
        spent = 0.0
        for count, (kind, job) in enumerate(_spread(kinds)):
            expected = self.seconds(jobs)
            if spent >= LIMIT or (expected is not None and spent >= max(SHORTEST, SHARE * expected)):
                break
            started = time.monotonic()
            pace = measure(job, (LIMIT - spent) / (len(kinds) - count) / 2)
            # not the import of PyTorch, which the first job would need as well
            spent += time.monotonic() - started if pace is None else pace.spent
            if pace is not None:
                self.expected[kind], self.measured[kind] = pace.seconds, pace.steps
        for kind in kinds.keys() - self.measured if self.measured else ():
            similar = max(self.measured, key=lambda other: (len(kind & other), self.expected[other]))
            self.expected[kind] = self.expected[similar]

    def expect(self, runs: Iterable[RunRecord]) -> None:
        """Expect of each kind of job the time that the steps of earlier runs of this kind took."""
        taken: dict[Words, list[float]] = defaultdict(list)
        for record in runs:
            seconds = record.metrics.get("seconds_a_step", 0.0) * record.steps
            if is_number(seconds) and seconds > 0:
                taken[kind_of(record.overrides.values())].append(seconds)
        self.expected = {kind: fmean(values) for kind, values in taken.items()}

    def plan(self, jobs: Sequence[Sequence[str]], total: int) -> None:
        """Note the jobs that follow: so many, whose overrides may be known or not."""
        self._left = {words_of(job): job for job in jobs if words_of(job) not in self.done}
        self._unknown = 0 if jobs else total

    def begin(self, job: Sequence[str]) -> None:
        """Note that a job starts."""
        self._begun[words_of(job)] = time.time()
        if words_of(job) not in self._left and self._unknown:
            self._unknown -= 1
            self._left[words_of(job)] = job

    def end(self, job: Sequence[str], directory: Path | None) -> str | None:
        """Note that a job has ended, and return how long the others take, as a text, if there is news.

        Args:
            job: the overrides of the job.
            directory: the directory of its run, None if it has failed or was DONE before.
        """
        begun = self._begun.pop(words_of(job), None)
        self._left.pop(words_of(job), None)
        if directory is None or begun is None:
            return None
        self._trained += 1
        with suppress(UserError, OSError, TypeError, ValueError):  # an estimate is worth no error
            started = datetime.fromisoformat(read_provenance(directory)["started"]).timestamp()
            if started >= begun - 1:  # else it was resumed: how long the whole takes is not known
                seconds = time.time() - (started if self.at_once is None else begun)  # jobs wait in a cluster's queue
                self._taken[kind_of(job)] = [*self._taken.get(kind_of(job), ()), seconds]
        left, remaining = len(self._left) + self._unknown, self.remaining()
        is_due = self._trained & (self._trained - 1) == 0  # after 1, 2, 4, 8, … jobs
        if remaining is None or remaining < LONG or not is_due:
            return None
        named = "other job takes" if left == 1 else f"other {left} jobs take"
        return f"The {named} {self._describe_seconds(remaining, left)}"

    def remaining(self) -> float | None:
        """Return about how many seconds the jobs take that have not ended, None if it is not known."""
        left = [*self._left.values(), *[()] * self._unknown]
        return self.seconds(left) if left else None

    def seconds(self, jobs: Sequence[Sequence[str]]) -> float | None:
        """Return about how many seconds jobs take until all have ended, None if nothing is known.

        They follow the jobs that run now. Jobs whose number at a time is not known count one after another.
        """
        taken = dict(self._taken)  # a copy, because a thread asks, too
        both = taken.keys() & self.expected.keys()
        expected = sum(len(taken[kind]) * self.expected[kind] for kind in both)
        factor = sum(sum(taken[kind]) for kind in both) / expected if expected else 1.0
        known = {kind: factor * seconds for kind, seconds in self.expected.items()}
        known |= {kind: fmean(seconds) for kind, seconds in taken.items()}
        found = [known.get(kind_of(job)) for job in jobs]
        values = [value for value in found if value is not None] or [*map(fmean, taken.values())]
        if not values:
            return None
        now, mean, durations = time.time(), fmean(values), []
        for job, value in zip(jobs, found, strict=True):
            passed = now - self._begun.get(words_of(job), now) if self.at_once else 0
            durations.append(max(0.0, (mean if value is None else value) - passed))
        return max(sum(durations) / (self.at_once or 1), max(durations))

    def describe(self, jobs: Sequence[Sequence[str]]) -> str | None:
        """Return how long jobs take as a text, and the source of the estimate; None if nothing is known."""
        seconds = self.seconds(jobs)
        if seconds is None:
            return None
        text = self._describe_seconds(seconds, len(jobs))
        kinds = {kind_of(job) for job in jobs}
        measured = [self.measured[kind] for kind in kinds & self.measured.keys()]
        if not measured:
            return f"{text} by the steps of earlier runs"
        steps = f"{min(measured)} to {max(measured)}" if min(measured) < max(measured) else measured[0]
        kind = "kind of job" if len(kinds) == 1 else "kinds of jobs"
        count = len(kinds) if len(measured) == len(kinds) else f"{len(measured)} of {len(kinds)}"
        others = ", the others extrapolated" if len(measured) < len(kinds) else ""
        return f"{text} on this machine, measured on {steps} steps of {count} {kind}{others}"

    def _describe_seconds(self, seconds: float, jobs: int) -> str:
        """Return a duration of so many jobs as text, and how many run at the same time if there are several."""
        at_once = min(self.at_once or 1, jobs)
        several = " one after another" if self.at_once is None else f" with {at_once} at a time" if at_once > 1 else ""
        return f"about {describe_seconds(seconds)}{several}"


def _spread(kinds: dict[Words, Sequence[str]]) -> Iterator[tuple[Words, Sequence[str]]]:
    """Yield kinds of jobs in an order in which the first ones differ: each is the least similar to those before it."""
    left, shared = dict(kinds), dict.fromkeys(kinds, 0)
    while left:
        kind = min(left, key=lambda one: shared[one])
        yield kind, left.pop(kind)
        for other in left:
            shared[other] = max(shared[other], len(kind & other))


def finished_runs(directory: Path, jobs: Iterable[Sequence[str]]) -> list[RunRecord]:
    """Return the finished runs in the directory of a sweep, and the records of the rows that its jobs train."""
    rows = {word.partition("=")[2] for job in jobs for word in job if word.startswith("experiment=")}
    found = []
    for folder in (directory, *(RECORDS / row for row in sorted(rows))):
        with suppress(UserError, OSError):  # an estimate is worth no error
            found += read(folder)[0] if folder.is_dir() else []
    return [record for record in found if record.results]


def unfinished_jobs(jobs: Sequence[Sequence[str]], directory: Path, runs: Sequence[RunRecord]) -> list[Sequence[str]]:
    """Return the jobs that have no finished run in the directory of the sweep."""
    own = (record for record in runs if record.directory.is_relative_to(directory))
    done = {words_of(record.overrides.values()) for record in own}
    return [job for job in jobs if words_of(job) not in done]


def describe_seconds(seconds: float) -> str:
    """Return a duration in one unit: "40 s", "12 min", "3.5 h", "4 days"."""
    for limit, unit, size in ((90, "s", 1), (5400, "min", 60), (172_800, "h", 3600)):
        if seconds < limit:
            digits = 1 if unit == "h" and seconds < 36_000 else 0
            return f"{max(seconds / size, 1):.{digits}f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def words_of(overrides: Iterable[str]) -> Words:
    """Return the overrides that identify a job."""
    return frozenset(word for word in overrides if role_of(word) != PROCESS and key_of(word) != "sweep")


def kind_of(job: Iterable[str]) -> Words:
    """Return the overrides in which jobs agree that take equally long."""
    return frozenset(
        word for word in words_of(job) if key_of(word) not in REPEATED and not key_of(word).startswith(UPDATES)
    )
