"""The formats of the cells of tables: how the numbers of some runs are one entry, with what makes it honest.

An entry has the marks of runs on other data, the seeds and steps behind it, and the seeds that lack.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

from gyral.core.inputs import count_of
from gyral.core.measures import Measure
from gyral.reports.catalogue import Sweep
from gyral.reports.frame import Frame, Runs
from gyral.reports.rows import UNVERIFIED, Row, by_budget, mixed_options
from gyral.reports.statistics import mean_text, standard_deviation
from gyral.reports.tables.table import NOTHING, Entry
from gyral.runs.run_record import RunRecord, remarks_of

MAX_LISTED_SEEDS = 5
TRANSCRIBED = ("‡", "transcribed from an earlier table; the run directory no longer exists")


def mean(runs: Runs, digits: int, marks: str = "") -> Entry:
    """Return the mean and the standard deviation of runs, "–" if none has a value."""
    values = [value for _, value in runs if value is not None]
    if not values:
        return Entry("–", runs=runs)
    text = mean_text(values, digits, marks)
    return Entry(text, runs=runs, mean=fmean(values), deviation=standard_deviation(values))


def without_deviation(entry: Entry) -> Entry:
    return replace(entry, text=entry.text.partition(" ")[0])


def noted(runs: Runs, measure: Measure) -> Entry:
    """Return a mean with its marks, seeds and steps; its text is empty without a value."""
    records = [record for record, _ in runs]
    entry = mean(runs, measure.digits, marks_of(records))
    return with_notes(entry if entry.values else replace(entry, text=""), records)


def measured(frame: Frame, row: Row, measure: Measure, column: str = "") -> Entry:
    """Return a measure on the test split, with its seeds and steps, the seeds that lack, and the other budgets."""
    assert frame.sweep
    metric, seeds = f"test/{measure.name}", frame.sweep.axes["seed"]

    def of(records: Iterable[RunRecord]) -> Entry:
        runs = frame.of(records, metric, column)
        entry, own = noted(runs, measure), [record for record, _ in runs]
        if not entry.values and (not runs or any(record.results for record in own)):  # the task has no such measure
            return NOTHING
        return with_absent(entry, absent_seeds(own, seeds), len(own))

    entry = of(row.records)
    budgets = (
        by_budget(record for record, _ in frame.of(row.others, metric, column)) if row.others and entry.runs else ()
    )
    return replace(entry, paper=row.published(measure.name, column), others=tuple(map(of, budgets)))


def stacked(
    runs: Runs, measure: Measure, paper: float | None = None, best: float | None = None, mark: str = ""
) -> Entry:
    """Return a mean, with the deviation, the value of the best seed and the published one below it."""
    entry = replace(without_deviation(mean(runs, measure.digits)), paper=paper)
    records = [record for record, _ in runs]
    missing = tuple(record.state for record in records if not record.results)
    numbers = (("±", entry.deviation), ("best", best if entry.deviation is not None else None), ("paper", paper))
    notes = tuple(f"{name} {number:.{measure.digits}f}" for name, number in numbers if number is not None)
    notes = (*notes[:-1], f"{notes[-1]}{mark}") if paper is not None else notes
    text = f"{entry.text}{marks_of(records)}" if entry.values else "" if missing else "–"
    return replace(entry, text=text, notes=notes, missing=missing)


def spread(runs: Runs, show: Callable[[float], str]) -> Entry:
    """Return the median of runs, with the smallest and the largest value if they print otherwise."""
    values = sorted(value for _, value in runs if value is not None)
    if not values:
        return Entry("–", runs=runs)
    middle, ends = show(median(values)), (show(values[0]), show(values[-1]))
    text = middle if {*ends} == {middle} else f"{middle} ({ends[0]} to {ends[1]})"
    return Entry(text, runs=runs, mean=median(values))


def published(value: Any, digits: int, mark: str = "") -> Entry:
    """Return a published value with its mark, see `Row.mark`."""
    return NOTHING if value is None else Entry(f"{value:.{digits}f}{mark}")


def parameters(records: Sequence[RunRecord], paper: float | None = None, *, as_range: bool = False) -> Entry:
    """Return the distinct numbers of parameters, or the smallest and the largest."""
    runs = [(record, record.metrics.get("parameters")) for record in records]
    sizes = list(dict.fromkeys([value for _, value in runs if value is not None]))
    if as_range and len(sizes) > 1:
        text = f"{min(sizes):,.0f} to {max(sizes):,.0f}"
    else:
        text = "\n".join([f"{size:,.0f}" for size in sizes])
    return Entry(text or "–", runs=runs, paper=paper, mean=sizes[0] if len(sizes) == 1 else None)


def seeds(records: Sequence[RunRecord]) -> Entry:
    """Return the number of finished seeds, with their steps and the missing seeds."""
    done = sum(record.results is not None for record in records)
    text = f"{done}" if done == len(records) else f"{done} of {len(records)}"
    return with_notes(Entry(text, runs=[(record, None) for record in records]), records)


def with_notes(entry: Entry, records: Sequence[RunRecord]) -> Entry:
    """Return an entry with the seeds and steps of its runs, and with the seeds that are not done."""
    done = [record for record in records if record.results]
    states: dict[str, list[str]] = {}
    for record in records if len(done) < len(records) else ():
        if not record.results:
            states.setdefault(record.state, []).append(record.seed)
    notes = (describe_seeds([record.seed for record in done]), describe_steps(done)) if done else ()
    return replace(entry, notes=notes, missing=tuple(f"{describe_seeds(own)} {state}" for state, own in states.items()))


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
    return count_of(steps[0], "step") if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,} steps"


def absent_seeds(records: Iterable[RunRecord], seeds: Sequence[str]) -> list[str]:
    """Return the seeds that no run has."""
    there = {record.seed for record in records}
    return [seed for seed in seeds if seed not in there]


def with_absent(entry: Entry, absent: list[str], started: int) -> Entry:
    """Return an entry that says how many seeds of a table have finished, if some have no run.

    Args:
        entry: an entry with the notes of `with_notes`.
        absent: the seeds that no run has.
        started: the number of the other seeds.
    """
    if not absent:
        return entry
    if not entry.values:
        return replace(entry, missing=(*entry.missing, f"{describe_seeds(absent)} missing"))
    count = f"{len(entry.values)} of {started + len(absent)} seeds"
    return replace(entry, notes=(count, *entry.notes[1:]), is_partial=True)


def marks_of(records: Sequence[RunRecord]) -> str:
    """Return the marks of the remarks that apply to at least one of the runs, whose data are not what the row names."""
    remarks = remarks_of(records) if any(record.remarks for record in records) else ()
    applied = [r.mark for r in remarks if any(record.metrics.get(f"test/{r.name}") for record in records)]
    return "".join(dict.fromkeys(applied)) + TRANSCRIBED[0] * any(record.transcribed for record in records)


def mark_footnotes(rows: Sequence[Row]) -> list[str]:
    """Return a footnote for each mark that the numbers of some row have."""
    found = "".join([marks_of(row.runs) for row in rows])
    if not found:
        return []
    remarks = remarks_of(record for row in rows for record in row.runs)
    meanings = dict.fromkeys([*((remark.mark, remark.footnote) for remark in remarks), TRANSCRIBED])
    return [f"{mark} {meaning}" for mark, meaning in meanings if mark in found]


def mixed_footnotes(rows: Sequence[Row], sweep: Sweep | None) -> list[str]:
    """Return a footnote for each row whose numbers are of runs that differ in more than their names say."""
    found = []
    for row in rows:
        options = [f"{key} ({', '.join(values)})" for key, values in mixed_options(row, sweep).items()]
        if options:
            found.append(f"{', '.join(row.label.splitlines())}: the runs differ in {', '.join(options)}.")
    return found


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
