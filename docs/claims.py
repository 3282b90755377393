"""Sentences of papers, tested on finished runs: mean, deviation, interval and verdict, for docs/results.py.

Means are compared by Welch's t-test. Where runs are solved or not, the counts of two rows are compared by Fisher's
exact test, and the count of one row with a bound: the sentence holds if at least the share `bound` of its seeds is
solved, or at most it. A sentence about several rows holds if it does for each of them, or for each pair of them.

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

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from math import inf, sqrt
from pathlib import Path
from statistics import fmean, variance
from typing import Any, ClassVar, Literal

from scipy.stats import fisher_exact, t

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
TAIL = 0.025  # the probability of a wrong verdict on each side; intervals have 95 %
FEWEST = 2  # seeds of a row that a verdict needs

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
        values: the number of each seed as printed, for each experiment that the sentence is about, and for each that
            these are compared with, unless that is a number.
        bound: the number that the runs are compared with, or None.
        higher: whether the sentence expects the higher number from the first row.
        averaged: over how many runs the number of a seed is the mean.
        solved: the value from which on a seed counts as solved, or None if means are compared.
        seeds: how many seeds the tables of the rows have. A seed whose run is missing can make counts look better than
            they are: without all seeds, counts decide nothing. A run that has diverged counts as not solved.
    """

    text: str
    paper: str
    command: str
    measure: Measure
    values: list[list[list[float]]]
    bound: float | None
    higher: bool
    averaged: int = 1
    solved: float | None = None
    seeds: int = 0

    @property
    def counts(self) -> list[list[tuple[int, int]]]:
        """The number of solved seeds of each experiment, and of all its seeds."""
        assert self.solved is not None
        return [[(sum(value >= self.solved for value in own), len(own)) for own in side] for side in self.values]

    @property
    def lacks_seeds(self) -> bool:
        """Whether an experiment has fewer seeds than counts need."""
        return any(seeds < max(self.seeds, FEWEST) for _, seeds in chain(*self.counts))

    @property
    def verdict_of_counts(self) -> str:
        """The verdict where seeds are solved or not."""
        if self.lacks_seeds:
            return UNDECIDED
        if self.bound is not None:
            shares = [solved / seeds for solved, seeds in self.counts[0]]
            reached = min(shares) >= self.bound if self.higher else max(shares) <= self.bound
            return HELD if reached else REFUTED
        expected, opposite = self.probabilities
        return HELD if expected <= TAIL else REFUTED if opposite <= TAIL else UNDECIDED

    @property
    def probabilities(self) -> tuple[float, float]:
        """Fisher's probabilities of the expected difference of the counts, and of the opposite one.

        Of several experiments, each is compared with each, and the largest probability counts.
        """
        pairs = [*product(*self.counts)]
        more, fewer = (max(fisher(*pair, side) for pair in pairs) for side in ("greater", "less"))
        return (more, fewer) if self.higher else (fewer, more)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Welch's interval of the difference of the means, or None with fewer than two seeds of an experiment."""
        samples = [*chain(*self.values)]
        return None if min(map(len, samples)) < FEWEST else welch_interval(samples, self.bound or 0.0)

    @property
    def verdict(self) -> str:
        """Held or refuted if the interval, as printed, excludes zero, or undecided; not tested if a row has no run."""
        if not all(map(any, self.values)):
            return UNTESTED
        if self.solved is not None:
            return self.verdict_of_counts
        if self.interval is None:
            return UNDECIDED
        low, high = self.interval if self.higher else (-self.interval[1], -self.interval[0])
        digits = self.measure.digits
        reached = round(low, digits) > 0 or (self.bound is not None and low >= 0)
        return HELD if reached else REFUTED if round(high, digits) < 0 else UNDECIDED


def fisher(first: tuple[int, int], second: tuple[int, int], side: str) -> float:
    """Return Fisher's one-sided probability of the solved seeds, and all seeds, of two experiments."""
    counts = [(solved, seeds - solved) for solved, seeds in (first, second)]
    return float(fisher_exact(counts, alternative=side).pvalue)


def welch_interval(samples: Sequence[Sequence[float]], bound: float) -> tuple[float, float]:
    """Return the 95 % interval of the difference of the means of two samples, or of one sample and a number.

    The samples may have different variances (Welch 1947). With few seeds, it is much wider than the range of a sample:
    the factor of the standard error is 12.7 with one degree of freedom, 4.3 with two and 2.8 with four.

    Args:
        samples: one or two samples of at least two values.
        bound: what a single sample is compared with.
    """
    difference = fmean(samples[0]) - (fmean(samples[1]) if len(samples) > 1 else bound)
    errors = [variance(own) / len(own) for own in samples]
    if not any(errors):
        return difference, difference
    freedom = sum(errors) ** 2 / sum(error**2 / (len(own) - 1) for error, own in zip(errors, samples, strict=True))
    width = float(t.isf(TAIL, freedom)) * sqrt(sum(errors))
    return difference - width, difference + width


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
    found = [[_seeds(records, row, entry.options, value, entry.mean_over) for row in names] for names in rows]
    complete = [_most_complete(seeds) for seeds in chain(*found) if seeds]
    averaged = sorted(set.intersection(*complete)) if complete else []
    return Claim(
        text=entry.claim,
        paper=entry.paper,
        command=entry.command,
        measure=measure,
        values=[[_means(seeds, averaged) for seeds in side] for side in found],
        bound=entry.bound,
        higher=entry.expected == "higher",
        averaged=len(averaged),
        solved=entry.solved,
        seeds=max((len(table.axes["seed"]) for table in containing(chain(*rows))), default=0),
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
    unsolved = None if entry.solved is None else -inf
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
    most = max(map(len, seeds.values()))
    return set.intersection(*(set(own) for own in seeds.values() if len(own) == most))


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
            first, *second = (_summary(claim.measure, values) for [values] in claim.values)
            digits, interval = claim.measure.digits, claim.interval
            shown = "–" if interval is None else f"{interval[0]:+z.{digits}f} to {interval[1]:+z.{digits}f}"
            measure = claim.measure.title + (f", mean of {claim.averaged}" if claim.averaged > 1 else "")
        else:
            first, *second = map(_counted, claim.counts)
            shown = f"p = {min(claim.probabilities):.2g}" if second else "–"
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


def _counted(counts: Sequence[tuple[int, int]]) -> str:
    """Return the solved seeds of experiments, together if each has the same."""
    if len({*counts}) == 1:
        counts = [(sum(solved for solved, _ in counts), sum(seeds for _, seeds in counts))]
    return ", ".join(_unbroken(f"{solved} of {seeds}") if seeds else "no run" for solved, seeds in counts)


def _summary(measure: Measure, values: list[float]) -> str:
    if not values:
        return "no run"
    return f"{_unbroken(mean_text(values, measure.digits))} {_unbroken(f'(n = {len(values)})')}"


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")
