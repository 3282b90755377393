"""How long a sweep takes, from a few measured steps, from its finished jobs and from earlier runs. Imports no torch."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from gyral.config.roles import PROCESS, key_of, role_of
from gyral.core.errors import UserError
from gyral.core.pace import Pace
from gyral.runs.directory import BUDGET, read_results
from gyral.runs.provenance import read_provenance
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord

RECORDS = Path("results/records")  # of the rows of the tables, in a checkout
REPEATED = ("seed", "threads", "sweep")  # in which jobs differ that take equally long
KINDS = ("experiment", "model", "task", BUDGET)  # in which jobs agree that take about equally long
UPDATES = ("optimizer", "scheduler")  # sections whose options change no time of a step
LIMIT = 20.0  # seconds within which the jobs of a sweep are measured
SHARE, SHORTEST = 0.02, 2.0  # of the sweep's time, and seconds: measuring takes no longer than the larger of them
WORTH = 1000  # steps of a sweep from which it is worth measuring some
LONG = 60.0  # seconds from which it is worth a line how long the other jobs take

Words = frozenset[str]


class Durations:
    """How long the jobs of a sweep take.

    A job takes as long as the finished jobs of its kind, that is with the same options but the seed and those of
    optimizer and schedule. Without one, it takes the time that its measured pace gives, corrected by what the finished
    jobs of other kinds took, or else as long as the others on average.

    Args:
        at_once: number of jobs that run at the same time on this machine, None if it is not known.

    Attributes:
        done: the jobs that were DONE before the sweep.
    """

    def __init__(self, at_once: int | None = 1) -> None:
        self.at_once = at_once
        self.done: set[Words] = set()
        self.paces: dict[Words, Pace] = {}
        self.measured: set[Words] = set()
        self._left: dict[Words, Sequence[str]] = {}
        self._unknown = 0  # number of jobs to come whose overrides are not known yet
        self._trained = 0  # number of jobs that have finished
        self._begun: dict[Words, float] = {}
        self._finished: dict[Words, list[float]] = defaultdict(list)
        self._steps: list[tuple[float, float]] = []  # seconds of all steps of finished jobs: taken and expected
        self._rest: list[tuple[float, Pace]] = []  # seconds of finished jobs, and their paces

    def measure(
        self,
        jobs: Sequence[Sequence[str]],
        measure: Callable[[Sequence[str], float], Pace | None],
    ) -> None:
        """Measure the pace of each kind of job, as far as `LIMIT` and `SHARE` allow; others take that of similar jobs.

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
                self.paces[kind] = pace
                self.measured.add(kind)
        for kind in kinds.keys() - self.measured if self.measured else ():
            self.paces[kind] = self._similar(kind)

    def _similar(self, kind: Words) -> Pace:
        """Return the slowest pace of the measured jobs that share the most options with a kind."""
        most = max(len(kind & other) for other in self.measured)
        return max((self.paces[other] for other in self.measured if len(kind & other) == most), key=lambda p: p.work)

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
        self._learn(job, directory, begun)
        self._trained += 1
        seconds = self.remaining()
        is_due = self._trained & (self._trained - 1) == 0  # after 1, 2, 4, 8, … jobs
        if seconds is None or seconds < LONG or not is_due:
            return None
        left = len(self._left) + self._unknown
        named = "other job takes" if left == 1 else f"other {left} jobs take"
        return f"The {named} about {describe_seconds(seconds)}{self.describe_at_once(left)}"

    def remaining(self) -> float | None:
        """Return about how many seconds the jobs take that have not ended, None if it is not known."""
        left = [*self._left.values(), *[()] * self._unknown]
        return self.seconds(left) if left else None

    def _learn(self, job: Sequence[str], directory: Path, begun: float) -> None:
        """Note how long a finished job took."""
        started = started_at(directory)
        if started is None or started < begun - 1:  # it was resumed: how long the whole takes is not known
            return
        # jobs of a cluster wait in its queue
        seconds, kind = time.time() - (started if self.at_once is None else begun), kind_of(job)
        self._finished[kind].append(seconds)
        if (pace := self.paces.get(kind)) is not None:
            self._rest.append((seconds, pace))
            with suppress(UserError, OSError):
                results = read_results(directory)
                step = results.get("seconds_a_step") or math.nan
                if step > 0:
                    self._steps.append((step * results["steps"], pace.step * results["steps"]))

    def seconds(self, jobs: Sequence[Sequence[str]]) -> float | None:
        """Return about how many seconds jobs take until all have ended, None if nothing is known.

        They follow the jobs that run now. Jobs whose number at a time is not known count one after another.
        """
        at_once = self.at_once or 1
        now, known = time.time(), {kind: self._of_kind(kind) for kind in map(kind_of, jobs)}
        values = [value for value in known.values() if value is not None]
        if not values:
            return None
        mean = fmean(values)
        durations = []
        for job in jobs:
            value = known[kind_of(job)]
            passed = now - self._begun.get(words_of(job), now) if self.at_once else 0
            durations.append(max(0.0, (mean if value is None else value) - passed))
        return max(sum(durations) / at_once, max(durations))

    def _of_kind(self, kind: Words) -> float | None:
        if self._finished.get(kind):
            return fmean(self._finished[kind])
        pace = self.paces.get(kind)
        if pace is None:
            return fmean(map(fmean, self._finished.values())) if self._finished else None
        taken, expected = (sum(column) for column in zip(*self._steps, strict=True)) if self._steps else (1.0, 1.0)
        factor = taken / expected
        if not self._rest:
            return pace.start + pace.work
        start = fmean(seconds - factor * other.work for seconds, other in self._rest)
        return max(0.0, start) + factor * pace.work

    def describe(self, jobs: Sequence[Sequence[str]]) -> str | None:
        """Return how long jobs take as a text, with what was measured; None if nothing is known."""
        seconds = self.seconds(jobs)
        if seconds is None:
            return None
        text = f"about {describe_seconds(seconds)}{self.describe_at_once(len(jobs))}"
        kinds = {kind_of(job) for job in jobs}
        if measured := kinds & self.measured:
            fewest, most = (of(self.paces[kind].measured for kind in measured) for of in (min, max))
            steps = f"{fewest} to {most}" if fewest < most else str(most)
            kind = "kind of job" if len(kinds) == 1 else "kinds of jobs"
            count = len(kinds) if len(measured) == len(kinds) else f"{len(measured)} of {len(kinds)}"
            text += f" on this machine, measured on {steps} steps of {count} {kind}"
            if len(measured) < len(kinds):
                text += ", the others extrapolated"
        return text

    def describe_at_once(self, jobs: int) -> str:
        """Return what is added to a duration of so many jobs if several run at the same time."""
        if self.at_once is None:
            return " one after another"
        at_once = min(self.at_once, jobs)
        return f" with {at_once} at a time" if at_once > 1 else ""


def _spread(kinds: dict[Words, Sequence[str]]) -> Iterator[tuple[Words, Sequence[str]]]:
    """Yield kinds of jobs in an order in which the first ones differ: each is the least similar to those before it."""
    left, shared = dict(kinds), dict.fromkeys(kinds, 0)
    while left:
        kind = min(left, key=lambda one: shared[one])
        yield kind, left.pop(kind)
        for other in left:
            shared[other] = max(shared[other], len(kind & other))


def started_at(directory: Path) -> float | None:
    """Return the time at which a run has first started, None if it is not known."""
    try:
        moment = datetime.fromisoformat(str(read_provenance(directory).get("started")))
    except (UserError, OSError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


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
    done = {words_of(record.overrides.values()) for record in own}
    return [job for job in jobs if words_of(job) not in done]


def expected_seconds(jobs: Sequence[Sequence[str]], runs: Sequence[RunRecord]) -> float | None:
    """Return about how long the steps of jobs take one after another, None without a finished run like one of them.

    The steps of a job take as long as the mean of the runs with the same options but their seed; without one, of the
    runs of the same model, task and number of steps; without one, of all other jobs.
    """
    equal: dict[Words, list[float]] = {}
    alike: dict[Words, list[float]] = {}
    for record in runs:
        seconds = record.metrics.get("seconds_a_step", math.nan) * record.steps
        if math.isfinite(seconds) and seconds > 0:
            words = words_of(record.overrides.values())
            equal.setdefault(_without_seed(words), []).append(seconds)
            alike.setdefault(_kind(words), []).append(seconds)
    known = []
    for words in map(words_of, jobs):
        found = equal.get(_without_seed(words)) or alike.get(_kind(words))
        if found:
            known.append(fmean(found))
    return fmean(known) * len(jobs) if known else None


def describe_runs(jobs: Sequence[Sequence[str]], runs: Sequence[RunRecord], at_once: int | None) -> str | None:
    """Return how long jobs take by finished runs as a text, None without a run like one of them."""
    seconds = expected_seconds(jobs, runs)
    if seconds is None:
        return None
    taken = describe_seconds(seconds / min(at_once or 1, len(jobs)))
    return f"about {taken}{Durations(at_once).describe_at_once(len(jobs))} by the steps of earlier runs"


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
        word
        for word in _without_seed(words_of(job))
        if "." not in key_of(word) or key_of(word).partition(".")[0] not in UPDATES
    )


def _without_seed(words: Iterable[str]) -> Words:
    return frozenset(word for word in words if key_of(word) not in REPEATED)


def _kind(words: Iterable[str]) -> Words:
    return frozenset(word for word in words if key_of(word) in KINDS)
