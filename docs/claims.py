"""Sentences of papers, tested on finished runs: mean, deviation, bootstrap interval and verdict, for docs/results.py.

Where runs are solved or not, the counts of two rows are compared by Fisher's exact test (one-sided, at 5 %), and the
count of one row with a bound: the sentence holds if at least the share `bound` of its seeds is solved, or at most it.
A sentence about several rows counts the seeds of all of them.

A file of claims is a YAML list. An entry says which runs it compares:

    - claim: With λ = 1, RUM answers more questions of bAbI than GRU.
      paper: Dangovski et al. 2019, table 2
      rows: rum_paper/table2/rum_lambda1   # the experiment; or, with solved, a list of several
      against: rum_paper/table2/gru        # another experiment; or a number: bound: 99
      options: [model.pooling=sum]         # the runs of both experiments with these options and no others
      mean_over: task.qa                   # the number of a seed is the mean over the values that all rows have
      measure: accuracy                    # or a number of a probe, such as layer 3/f1 with probe: treebank
      solved: 99                           # instead of means, the seeds with at least this value are counted
      expected: higher                     # or lower
      command: gyral train sweep=rum_paper_table2 model.pooling=sum
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Literal

import numpy as np

from gyral.config.roles import settings_of
from gyral.core.checks import check_choice
from gyral.core.measures import Measure, percent
from gyral.reports.catalogue import containing
from gyral.reports.measures import task_measures
from gyral.reports.rows import counted_runs
from gyral.reports.statistics import mean_text
from gyral.runs.record_files import read_probe
from gyral.runs.run_record import RunRecord, measures_of
from gyral.runs.saved_files import read_yaml_as

HELD, REFUTED, UNDECIDED, UNTESTED = "held", "refuted", "undecided", "not tested"
RESAMPLES = 10_000
LEVEL = 95  # % of the bootstrap interval
FEWEST = 2  # seeds of a row that a verdict needs
SIGNIFICANT = 0.05  # probability

Value = Callable[[RunRecord], float | None]


@dataclass(frozen=True)
class _Entry:
    """An entry of a file of claims."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}
    claim: str
    paper: str
    rows: str | list[str]
    measure: str
    expected: Literal["higher", "lower"]
    command: str
    against: str | list[str] | None = None
    bound: float | None = None
    options: list[str] = field(default_factory=list)
    mean_over: str | None = None
    probe: str | None = None
    solved: float | None = None

    def __post_init__(self) -> None:
        if (self.against is None) == (self.bound is None):
            raise ValueError("must have either against or bound")
        if self.probe is not None and not re.fullmatch(r"\w+", self.probe):
            raise ValueError("probe must be a word")
        if self.solved is None and any(len(names) != 1 for names in self.experiments):
            raise ValueError("several rows need solved")

    @property
    def experiments(self) -> list[list[str]]:
        """The experiments that the sentence is about, and those that they are compared with, if these are no number."""
        given = (self.rows, self.against)
        return [[names] if isinstance(names, str) else names for names in given if names is not None]


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper and what was measured.

    Attributes:
        text: the sentence, in our words.
        paper: its source.
        command: the command that makes the runs.
        measure: the compared measure.
        rows: the experiment that the sentence is about, and the one that it is compared with, if it is not a number; of
            several experiments, the first.
        values: for each of `rows`, the number of each seed as printed.
        bound: the number that the runs are compared with, or None.
        higher: whether the sentence expects the higher number from the first row.
        averaged: over how many runs the number of a seed is the mean.
        solved: the value from which on a seed counts as solved, or None if means are compared.
        seeds: how many seeds the tables of the rows have. A seed whose run is missing can make counts look better than
            they are: without all seeds, counts decide nothing. A run that has diverged counts as not solved.
        experiments: for each of `rows`, how many experiments its seeds are of.
    """

    text: str
    paper: str
    command: str
    measure: Measure
    rows: tuple[str, ...]
    values: tuple[list[float], ...]
    bound: float | None
    higher: bool
    averaged: int = 1
    solved: float | None = None
    seeds: int = 0
    experiments: tuple[int, ...] = (1, 1)

    @property
    def counts(self) -> list[tuple[int, int]]:
        """The number of solved seeds of each row, and of all its seeds."""
        assert self.solved is not None
        return [(sum(value >= self.solved for value in own), len(own)) for own in self.values]

    @property
    def lacks_seeds(self) -> bool:
        """Whether a row has fewer seeds than counts need."""
        expected = [max(self.seeds * count, FEWEST) for count in self.experiments]
        return any(seeds < most for (_, seeds), most in zip(self.counts, expected, strict=False))

    @property
    def verdict_of_counts(self) -> str:
        """The verdict where seeds are solved or not."""
        (solved, seeds), *others = self.counts
        if self.lacks_seeds:
            return UNDECIDED
        if not others:
            assert self.bound is not None
            reached = solved >= self.bound * seeds if self.higher else solved <= self.bound * seeds
            return HELD if reached else REFUTED
        expected, opposite = self.probabilities
        return HELD if expected <= SIGNIFICANT else REFUTED if opposite <= SIGNIFICANT else UNDECIDED

    @property
    def probabilities(self) -> tuple[float, float]:
        """Fisher's probabilities of the counts of two rows: of the expected difference, and of the opposite one."""
        first, second = self.counts
        found = fisher(*first, *second), fisher(*second, *first)
        return found if self.higher else (found[1], found[0])

    @property
    def interval(self) -> tuple[float, float] | None:
        """The bootstrap interval of the difference of the means, or None with fewer than two seeds of a row."""
        if min(map(len, self.values)) < FEWEST:
            return None
        return bootstrap_interval(self.values, self.bound or 0.0)

    @property
    def verdict(self) -> str:
        """Held or refuted if the interval, as printed, excludes zero, or undecided; not tested if a row has no run."""
        if not all(self.values):
            return UNTESTED
        if self.solved is not None:
            return self.verdict_of_counts
        if self.interval is None:
            return UNDECIDED
        low, high = self.interval if self.higher else (-self.interval[1], -self.interval[0])
        digits = self.measure.digits
        reached = round(low, digits) > 0 or (self.bound is not None and low >= 0)
        return HELD if reached else REFUTED if round(high, digits) < 0 else UNDECIDED


def fisher(solved: int, seeds: int, other: int, others: int) -> float:
    """Return the probability of at least this many solved seeds, if the solved ones fell to both rows at random."""
    total, ways = solved + other, math.comb(seeds + others, solved + other)
    cases = range(solved, min(seeds, total) + 1)
    return sum(math.comb(seeds, count) * math.comb(others, total - count) for count in cases) / ways


def bootstrap_interval(values: Sequence[Sequence[float]], bound: float) -> tuple[float, float]:
    """Return the percentile interval of the difference of the means of two samples, or of one sample and a number.

    Each sample is resampled with replacement (Efron 1979). With two or three seeds, the interval is that between the
    extremes of the sample, or nearly so, and it is a lower bound of the uncertainty.

    Args:
        values: one or two samples.
        bound: what a single sample is compared with.
    """
    generator = np.random.default_rng(0)
    means = [generator.choice(np.array(own), (RESAMPLES, len(own))).mean(axis=1) for own in values]
    difference = means[0] - (means[1] if len(means) > 1 else bound)
    tail = (100 - LEVEL) / 2
    low, high = np.percentile(difference, [tail, 100 - tail])
    return float(low), float(high)


def read_claims(path: Path, records: Sequence[RunRecord]) -> list[Claim]:
    """Return the claims of a file with their runs.

    Raises:
        UserError: the file is not a list of claims.
    """
    entries = read_yaml_as(path, list[_Entry])
    known = measures_of(records)
    return [
        _read_claim(f"{path}: claim {number}", entry, records, known) for number, entry in enumerate(entries, start=1)
    ]


def _read_claim(where: str, entry: _Entry, records: Sequence[RunRecord], known: Mapping[str, Measure]) -> Claim:
    measure, value = _read_measure(where, entry, known)
    rows = entry.experiments
    found = [
        {
            f"{row} {seed}": own
            for row in names
            for seed, own in _seeds(records, row, entry.options, value, entry.mean_over).items()
        }
        for names in rows
    ]
    averaged = sorted(set.intersection(*map(_most_complete, found)))
    return Claim(
        text=entry.claim,
        paper=entry.paper,
        command=entry.command,
        measure=measure,
        rows=tuple(names[0] for names in rows),
        values=tuple(_means(seeds, averaged) for seeds in found),
        bound=entry.bound,
        higher=entry.expected == "higher",
        averaged=len(averaged),
        solved=entry.solved,
        seeds=max((len(table.axes["seed"]) for table in containing(chain(*rows))), default=0),
        experiments=tuple(map(len, rows)),
    )


def _read_measure(where: str, entry: _Entry, known: Mapping[str, Measure]) -> tuple[Measure, Value]:
    """Return the measure of a claim, of those that runs have, and the function that reads it from a record."""
    name, probe = entry.measure, entry.probe
    if probe is not None:
        return Measure(name, f"{probe}, {name}", digits=1), lambda record: read_probe(record, probe).get(name)
    measures = dict(known)
    if name not in measures:
        measures |= {measure.name: measure for measure in task_measures(entry.experiments[0][0])}
    measure = measures[check_choice(f"{where}: measure", name, tuple(measures))]
    unsolved = None if entry.solved is None else -math.inf
    return measure, lambda record: unsolved if record.diverged else measure.value(record.results)


def _seeds(
    records: Sequence[RunRecord], experiment: str, options: Sequence[str], read: Value, mean_over: str | None
) -> dict[str, dict[str, float]]:
    """Return for each seed of an experiment the measure of its runs, by their value of the option `mean_over`."""
    tables = containing([experiment])
    free = {mean_over, *(key for table in tables for key in table.chosen)}
    runs = [record for record in records if record.experiment == experiment and _has(record, options, free)]
    for table in tables:
        runs = counted_runs(table, runs)
    seeds: dict[str, dict[str, float]] = {}
    for record in runs:
        value = read(record)
        if value is not None:
            seeds.setdefault(record.seed, {})[str(record.options.get(mean_over)) if mean_over else ""] = value
    return dict(sorted(seeds.items()))


def _most_complete(seeds: dict[str, dict[str, float]]) -> set[str]:
    """Return the values that the seeds with the most runs have."""
    most = max(map(len, seeds.values()), default=0)
    return set.intersection(*(set(own) for own in seeds.values() if len(own) == most)) if seeds else set()


def _means(seeds: dict[str, dict[str, float]], averaged: Sequence[str]) -> list[float]:
    """Return the mean of each seed that has all of these values."""
    return [fmean(own[key] for key in averaged) for own in seeds.values() if averaged and own.keys() >= {*averaged}]


def _has(record: RunRecord, options: Sequence[str], free: set[str | None]) -> bool:
    """Return whether a run has these options and no other settings, except for the keys that are free."""
    wanted = {option.partition("=")[0] for option in options}
    return set(settings_of(record.overrides)) <= wanted | free and all(map(record.has, options))


def claims_table(claims: Sequence[Claim]) -> str:
    """Return the claims as a table in Markdown, with the counts of the verdicts above and the commands below it."""
    verdicts = [claim.verdict for claim in claims]
    counted = ((verdicts.count(name), name) for name in (HELD, REFUTED, UNDECIDED, UNTESTED))
    refuted = ", ".join(str(number) for number, verdict in enumerate(verdicts, start=1) if verdict == REFUTED)
    counts = ", ".join(
        f"{count} {name}" + (f" ({refuted})" if name == REFUTED and len(claims) > 1 else "")
        for count, name in counted
        if count
    )
    commands: dict[str, list[str]] = {}
    lines = [
        "| | claim | measured | compared with | difference | verdict |",
        "| ---: | --- | ---: | ---: | ---: | --- |",
    ]
    for number, claim in enumerate(claims, start=1):
        if claim.solved is None:
            first, *second = (_summary(claim.measure, values) for values in claim.values)
            digits, interval = claim.measure.digits, claim.interval
            shown = "–" if interval is None else f"{interval[0]:+z.{digits}f} to {interval[1]:+z.{digits}f}"
            measure = claim.measure.title + (f", mean of {claim.averaged}" if claim.averaged > 1 else "")
        else:
            first, *second = (f"{solved} of {seeds}" if seeds else "no run" for solved, seeds in claim.counts)
            shown = f"p = {claim.probabilities[0]:.2g}" if second else "–"
            shown = "too few seeds" if claim.lacks_seeds else shown
            measure = f"seeds with {claim.measure.title} ≥ {claim.solved:g}"
        if second:
            compared = second[0]
        else:
            compared = f"{claim.bound:g}" if claim.solved is None else f"{percent(claim.bound)} of the seeds"
        sentence = f"{claim.text} ({claim.paper}; {measure})"
        commands.setdefault(claim.command, []).append(str(number))
        lines.append(f"| {number} | {sentence} | {first} | {compared} | {shown} | **{claim.verdict}** |")
    block = "\n".join(f"* {', '.join(numbers)}: `{command}`" for command, numbers in commands.items())
    folded = f"<details markdown>\n<summary>Commands of the claims</summary>\n\n{block}\n\n</details>"
    total = "1 claim" if len(claims) == 1 else f"{len(claims)} claims"
    return "\n".join([f"{total}: {counts}.", "", *lines, "", folded])


def _summary(measure: Measure, values: list[float]) -> str:
    if not values:
        return "no run"
    return f"{mean_text(values, measure.digits)} (n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{len(values)})"
