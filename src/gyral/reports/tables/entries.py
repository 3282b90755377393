"""The entries of tables, made from the runs that they summarize."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from gyral.core.measures import Measure
from gyral.reports.numbers import Runs
from gyral.reports.rows import UNVERIFIED, Row
from gyral.reports.tables.table import NOTHING, Entry
from gyral.runs.run_record import RunRecord, remarks_of

MAX_LISTED_SEEDS = 5
TRANSCRIBED = ("‡", "transcribed from an earlier table; the run directory does not exist any more")


def mean_entry(runs: Runs, digits: int, *, with_deviation: bool = True) -> Entry:
    """Return the entry of the mean and the standard deviation of runs, "–" if none has a value."""
    values = [value for _, value in runs if value is not None]
    if not values:
        return Entry("–", runs=tuple(runs))
    deviation = standard_deviation(values) if len(values) > 1 else None
    shown = "" if deviation is None or not with_deviation else f" ± {deviation:.{digits}f}"
    return Entry(f"{fmean(values):.{digits}f}{shown}", runs=tuple(runs), mean=fmean(values), deviation=deviation)


def noted_entry(runs: Runs, measure: Measure) -> Entry:
    """Return the entry of a measure with its marks, seeds and steps; its text is empty without a value."""
    entry = mean_entry(runs, measure.digits)
    records = [record for record, _ in runs]
    mean, space, deviation = entry.text.partition(" ")
    text = f"{mean}{marks_of(records)}{space}{deviation}" if entry.values else ""
    return with_notes(replace(entry, text=text), records)


def stacked_entry(
    runs: Runs, measure: Measure, paper: float | None = None, best: float | None = None, mark: str = ""
) -> Entry:
    """Return the entry of a mean, with the deviation, the best value and the published one below it.

    Args:
        runs: the runs with their values.
        measure: the measure.
        paper: the published value.
        best: the value of the best seed.
        mark: the mark of the published value, see `Row.mark`.
    """
    entry = replace(mean_entry(runs, measure.digits, with_deviation=False), paper=paper)
    records = [record for record, _ in runs]
    missing = tuple(record.state for record in records if not record.results)
    numbers = (("±", entry.deviation), ("best", best if entry.deviation is not None else None), ("paper", paper))
    notes = tuple(f"{name} {number:.{measure.digits}f}" for name, number in numbers if number is not None)
    notes = (*notes[:-1], f"{notes[-1]}{mark}") if paper is not None else notes
    text = f"{entry.text}{marks_of(records)}" if entry.values else "" if missing else "–"
    return replace(entry, text=text, notes=notes, missing=missing)


def published_entry(value: float | None, digits: int, mark: str = "") -> Entry:
    """Return the entry of a published value with its mark, see `Row.mark`."""
    return NOTHING if value is None else Entry(f"{value:.{digits}f}{mark}")


def parameters_entry(records: Sequence[RunRecord], paper: float | None = None, *, as_range: bool = False) -> Entry:
    """Return the entry of the distinct numbers of parameters, or of the smallest and the largest."""
    runs = tuple((record, record.metrics.get("parameters")) for record in records)
    sizes = list(dict.fromkeys(value for _, value in runs if value is not None))
    ends = (min(sizes), max(sizes)) if as_range and len(sizes) > 1 else ()
    text = " to ".join(f"{size:,.0f}" for size in ends) or "\n".join(f"{size:,.0f}" for size in sizes)
    return Entry(text or "–", runs=runs, paper=paper, mean=sizes[0] if len(sizes) == 1 else None)


def with_notes(entry: Entry, records: Sequence[RunRecord]) -> Entry:
    """Return an entry with the seeds and steps of its runs, and with the seeds that are not done."""
    done = [record for record in records if record.results]
    states: dict[str, list[str]] = {}
    for record in records:
        if not record.results:
            states.setdefault(record.state, []).append(record.seed)
    return replace(
        entry,
        notes=(describe_seeds([record.seed for record in done]), describe_steps(done)) if done else (),
        missing=tuple(f"{describe_seeds(seeds)} {state}" for state, seeds in states.items()),
    )


def describe_seeds(seeds: list[str]) -> str:
    """Return a short description of seeds, such as "seeds 1, 2"."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    numbers = sorted(int(seed) for seed in seeds if seed.isdecimal())
    if len(seeds) <= MAX_LISTED_SEEDS or len(numbers) < len(seeds):
        return f"seeds {', '.join(sorted(seeds, key=lambda seed: (len(seed), seed)))}"
    is_range = numbers == [*range(numbers[0], numbers[0] + len(numbers))]
    return f"seeds {numbers[0]} to {numbers[-1]}" if is_range else f"{len(seeds)} seeds"


def describe_steps(records: Sequence[RunRecord]) -> str:
    """Return the number of steps of runs, such as "600 steps" or "600 to 1,000 steps"."""
    steps = sorted({record.steps for record in records if record.steps or not record.transcribed})
    if not steps:
        return "unknown steps"
    return f"{steps[0]:,} steps" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,} steps"


def absent_seeds(records: Sequence[RunRecord], seeds: Sequence[str]) -> list[str]:
    """Return the seeds that no run has."""
    there = {record.seed for record in records}
    return [seed for seed in seeds if seed not in there]


def marks_of(records: Sequence[RunRecord]) -> str:
    """Return the marks of the remarks that apply to at least one of the runs, whose data are not what the row names."""
    applied = (r for r in remarks_of(records) if any(record.metrics.get(f"test/{r.name}") for record in records))
    marks = "".join(dict.fromkeys(remark.mark for remark in applied))
    return marks + TRANSCRIBED[0] * any(record.transcribed for record in records)


def mark_footnotes(rows: Sequence[Row]) -> list[str]:
    """Return a footnote for each mark that the numbers of some row have."""
    found = "".join(marks_of(row.runs) for row in rows)
    remarks = remarks_of(record for row in rows for record in row.runs)
    meanings = dict.fromkeys([*((remark.mark, remark.footnote) for remark in remarks), TRANSCRIBED])
    return [f"{mark} {meaning}" for mark, meaning in meanings if mark in found]


def source_footnotes(rows: Sequence[Row]) -> list[str]:
    """Return a line for each source of published values: the paper, the place, and whether they were read there."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for row in rows:
        if row.paper.keys() - {"row"} and row.source.get("paper"):
            found.setdefault(tuple(row.source.values()), []).append(row.name)
    lines = []
    for (paper, place, verified), names in found.items():
        of = "" if len(found) == 1 or len(names) > 3 else f" of {', '.join(dict.fromkeys(names))}"
        read = f"; {UNVERIFIED} marks values that nobody has compared with it" if verified is False else ""
        read = f"; read in {verified}" if isinstance(verified, str) else read
        lines.append(f"Published values{of}: {paper}{f', {place}' if place else ''}{read}.")
    return lines


def standard_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation of a sample of at least two values, NaN if one of them is not finite."""
    return stdev(values) if all(map(math.isfinite, values)) else math.nan
