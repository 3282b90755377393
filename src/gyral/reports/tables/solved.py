"""The layout "solved": how many runs solve each column, for how long words, and after how many steps. Imports no torch.

Outcomes of such runs are near 100 % or near chance, and their mean describes none of them: an entry has the number of
runs that are solved, and the median, the smallest and the largest value.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from typing import Any

from gyral.core.measures import Measure, percent
from gyral.reports.frame import Frame, Runs
from gyral.reports.rows import Row
from gyral.reports.statistics import CONFIDENCE, exact_interval
from gyral.reports.tables import cells
from gyral.reports.tables.table import CHECKPOINTS, Entry, Table, pivot
from gyral.runs.run_record import RunRecord

HALF = 90.0  # per cent of words, of the longest length that a run tracks
NEAR = 2.0  # per cent, between a median and a level with a meaning
FACTORS = (1, 2, 4, 8)
SPREAD = "median (smallest and largest value) over the seeds"


def solved_tables(frame: Frame) -> list[Table]:
    """Return the tables of a sweep with this layout."""
    sweep: Any = frame.sweep
    main = sweep.main

    def table(title: str, cell: Callable[[str, Row], Entry], caption: str, *more: tuple[Any, ...]) -> Table:
        columns = [(sweep.head(column), partial(cell, column)) for column in frame.columns]
        return pivot(frame.rows, [*columns, *more], title, caption=caption).without_empty_rows()

    def values(name: str, column: str, row: Row) -> Runs:
        return frame.of(row.records, f"test/{name}", column)

    def solved(column: str, row: Row) -> Entry:
        entry = cells.spread(values(main.name, column, row), partial(_number, main))
        ended = [record for record, value in entry.runs if value is not None or record.diverged]
        if not ended:
            return entry
        levels = sweep.levels.get(sweep.head(column), {}) if entry.values else {}
        notes = tuple(name for level, name in levels.items() if abs(median(entry.values) - level) <= NEAR)
        text = f"{sweep.solved_count(entry.values)}/{len(ended)}: {entry.text}"
        if diverged := len(ended) - len(entry.values):  # without a value, and not solved
            notes = (*notes, f"{diverged} diverged")
        if absent := cells.absent_seeds(ended, sweep.axes["seed"]):
            notes = (*notes, f"{len(ended)} of {len(ended) + len(absent)} seeds")
        return Entry(text, notes, runs=entry.runs, mean=entry.mean, is_partial=bool(absent))

    def longest(column: str, row: Row) -> Entry:
        return _longest_entry(frame, row, column, main)

    def steps(column: str, row: Row) -> Entry:
        runs: Runs = []
        most = 0
        for record in frame.in_column(row, column):
            curve = record.curves.get(f"val/{sweep.measure}") if record.results else None
            if curve is not None:
                reached = (s for s, v in zip(curve.steps, curve.values, strict=True) if v * main.scale >= sweep.solved)
                most = max(most, record.steps)
                runs.append((record, float(next(reached, math.inf))))
        return cells.spread(runs, lambda value: f"{value:,.0f}" if math.isfinite(value) else f"> {most:,}")

    most = max((len(frame.in_column(row, column)) for row in frame.rows for column in frame.columns), default=0)
    counts = _intervals(most or len(sweep.axes["seed"]))  # before the first run, of the runs to come
    caption = f"runs with at least {sweep.solved:g} %, of all; then {SPREAD}, {CHECKPOINTS}; {counts}"
    sizes = ("parameters", lambda row: cells.parameters(row.records, as_range=True))
    tables = [table(frame.title, solved, caption, sizes)]
    for measure in frame.measures[1:]:
        title = f"{measure.label[0].upper()}{measure.label[1:]}, in {measure.unit}"
        cell = lambda c, row, m=measure: cells.spread(values(m.name, c, row), partial(_number, m))  # noqa: E731
        tables.append(table(title, cell, SPREAD))
    if any(has_lengths(row.records, main) for row in frame.rows):
        tables.append(
            table(f"Longest words of which {HALF:g} % are right ({main.label})", longest, f"letters; {SPREAD}")
        )
    tables.append(table(f"Steps to {sweep.solved:g} % in validation", steps, f"{SPREAD}; > has not been reached"))
    return tables


def _number(measure: Measure, value: float) -> str:
    return f"{value:.{measure.digits}f}"


def _intervals(runs: int) -> str:
    """Return the exact intervals of the shares that a number of runs can have."""
    ends = ((count, exact_interval(count, runs)) for count in range(runs, -1, -1))
    shown = (f"{count}/{runs} {100 * low:.0f} to {100 * high:.0f} %" for count, (low, high) in ends)
    return f"exact {percent(CONFIDENCE)} intervals of the share: {', '.join(shown)}"


def has_lengths(records: Sequence[RunRecord], measure: Measure) -> bool:
    """Return whether some runs have results at multiples of the length of training, besides those at this length."""
    names = {f"test/{measure.name}_{factor}x" for factor in FACTORS[1:]}
    return any(not names.isdisjoint(record.results or {}) for record in records)


def _longest_entry(frame: Frame, row: Row, column: str, measure: Measure) -> Entry:
    longest: dict[str, tuple[RunRecord, float]] = {}
    tested: dict[str, float] = {}
    for factor in FACTORS if has_lengths(row.records, measure) else ():
        name = measure.name if factor == 1 else f"{measure.name}_{factor}x"
        for record, value in frame.with_value(row.records, f"test/{name}", column):
            length = factor * record.config["task"]["length"]
            before = longest.setdefault(record.place, (record, 0.0))[1]
            shorter = tested.get(record.place, 0.0)
            tested[record.place] = length
            if value >= HALF and before == shorter:
                longest[record.place] = record, length
    ends = max(tested.values(), default=0.0)
    show = lambda value: f"≥ {value:.0f}" if value == ends else f"{value:.0f}" if value else "–"  # noqa: E731
    return cells.spread(list(longest.values()), show)
