"""The layout "solved": how many runs solve each column, and how long, how fast and at what cost. Imports no torch.

Outcomes of such runs are near 100 % or near chance, and their mean describes none of them: an entry has the number of
runs that are solved, and the median, the smallest and the largest value.
"""

import math
from collections.abc import Callable, Sequence
from statistics import median

from gyral.core.measures import Measure, percent
from gyral.reports.catalogue import Sweep
from gyral.reports.numbers import Numbers
from gyral.reports.rows import Row, columns_of, in_column
from gyral.reports.tables.entries import absent_seeds, describe_seeds, parameters_entry
from gyral.reports.tables.table import CHECKPOINTS, Column, Entry, Table
from gyral.runs.run_record import RunRecord

HALF = 90.0  # per cent of words, of the longest length that a run tracks
CONFIDENCE = 0.95
NEAR = 2.0  # per cent, between a median and a level with a meaning
FACTORS = (1, 2, 4, 8)


def solved_tables(sweep: Sweep, rows: list[Row], numbers: Numbers) -> list[Table]:
    """Return the tables of a sweep."""
    columns = columns_of(sweep, rows)

    def table(title: str, make: Callable[[Row, str], Entry], caption: str) -> Table:
        shown = [Column(sweep.head(column), [make(row, column) for row in rows]) for column in columns]
        return Table(title, [row.label for row in rows], shown, caption=caption).without_empty_rows()

    def solved(row: Row, column: str) -> Entry:
        return _solved_entry(sweep, numbers, row, column)

    main = sweep.main
    most = max((len(in_column(sweep, row, column)) for row in rows for column in columns), default=0)
    most = most or len(sweep.axes["seed"])  # before the first run
    spread = "median (smallest and largest value) over the seeds"
    found = [
        table(
            sweep.title,
            solved,
            f"runs with at least {sweep.solved:g} %, of all; then {spread}, {CHECKPOINTS}; {_intervals(most)}",
        )
    ]
    for name in sweep.also:
        measure = sweep.measures[name]
        title = f"{measure.label[0].upper()}{measure.label[1:]}, in {measure.unit}"
        found.append(table(title, lambda row, column, m=measure: _spread_entry(numbers, row, column, m), spread))  # type: ignore[misc]
    if any(has_lengths(row.records, main) for row in rows):
        title = f"Longest words of which {HALF:g} % are right ({main.label})"
        found.append(table(title, lambda row, column: _longest_entry(numbers, row, column, main), f"letters; {spread}"))
    title = f"Steps to {sweep.solved:g} % in validation"
    found.append(
        table(title, lambda row, column: _steps_entry(sweep, row, column), f"{spread}; > has not been reached")
    )
    cost = table(
        "Milliseconds of a step",
        lambda row, column: _cost_entry(in_column(sweep, row, column)),
        "median over the seeds, on one thread",
    )
    sizes = Column("parameters", [parameters_entry(row.records, as_range=True) for row in rows])
    names = {name: index for index, name in enumerate(row.label for row in rows)}
    shown = [sizes.entries[names[name]] for name in cost.names]
    return [*found, Table(cost.title, cost.names, [*cost.columns, Column("parameters", shown)], caption=cost.caption)]


def exact_interval(solved: int, runs: int) -> tuple[float, float]:
    """Return the exact interval of Clopper and Pearson (1934) of a share, at 95 %: solved ≤ runs, runs ≥ 1."""
    tail = (1 - CONFIDENCE) / 2

    def at_least(count: int, share: float) -> float:
        return sum(math.comb(runs, k) * share**k * (1 - share) ** (runs - k) for k in range(count, runs + 1))

    def solve(is_low: Callable[[float], bool]) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if is_low(middle) else (low, middle)
        return (low + high) / 2

    lower = 0.0 if solved == 0 else solve(lambda share: at_least(solved, share) < tail)
    upper = 1.0 if solved == runs else solve(lambda share: 1 - at_least(solved + 1, share) > tail)
    return lower, upper


def _intervals(runs: int) -> str:
    """Return the exact intervals of the shares that a number of runs can have."""
    ends = ((count, exact_interval(count, runs)) for count in range(runs, -1, -1))
    shown = (f"{count}/{runs} {100 * low:.0f} to {100 * high:.0f} %" for count, (low, high) in ends)
    return f"exact {percent(CONFIDENCE)} intervals of the share: {', '.join(shown)}"


def has_lengths(records: Sequence[RunRecord], measure: Measure) -> bool:
    """Return whether some runs have results at multiples of the length of training, beside those at this length."""
    names = {f"test/{measure.name}_{factor}x" for factor in FACTORS[1:]}
    return any(not names.isdisjoint(record.results or {}) for record in records)


def solved_count(sweep: Sweep, values: Sequence[float]) -> int:
    """Return the number of runs that are solved, given the measure of each as tables print it."""
    return sum(value >= sweep.solved for value in values)


def _solved_entry(sweep: Sweep, numbers: Numbers, row: Row, column: str) -> Entry:
    measure = sweep.main
    runs = numbers.of(in_column(sweep, row, column), f"test/{measure.name}", column)
    entry = _spread(runs, lambda value: f"{value:.{measure.digits}f}")
    if not entry.values:
        return entry
    text = f"{solved_count(sweep, entry.values)}/{len(entry.values)}: {entry.text}"
    levels = sweep.levels.get(sweep.head(column), {})
    notes = tuple(name for level, name in levels.items() if abs(median(entry.values) - level) <= NEAR)
    absent = absent_seeds([record for record, value in runs if value is not None], sweep.axes["seed"])
    missing = (f"{describe_seeds(absent)} missing",) if absent else ()
    return Entry(text, notes, missing, entry.runs, mean=entry.mean)


def _spread_entry(numbers: Numbers, row: Row, column: str, measure: Measure) -> Entry:
    runs = numbers.of(row.records, f"test/{measure.name}", column)
    return _spread(runs, lambda value: f"{value:.{measure.digits}f}")


def _longest_entry(numbers: Numbers, row: Row, column: str, measure: Measure) -> Entry:
    longest: dict[str, tuple[RunRecord, float]] = {}
    tested: dict[str, float] = {}
    for factor in FACTORS if has_lengths(row.records, measure) else ():
        name = measure.name if factor == 1 else f"{measure.name}_{factor}x"
        for record, value in numbers.of(row.records, f"test/{name}", column):
            if value is None:
                continue
            length = factor * record.config["task"]["length"]
            before = longest.setdefault(record.place, (record, 0.0))[1]
            shorter = tested.get(record.place, 0.0)
            tested[record.place] = length
            if value >= HALF and before == shorter:
                longest[record.place] = record, length
    runs = list(longest.values())
    ends = max(tested.values(), default=0.0)
    return _spread(runs, lambda value: f"≥ {value:.0f}" if value == ends else f"{value:.0f}" if value else "–")


def _steps_entry(sweep: Sweep, row: Row, column: str) -> Entry:
    runs, most = [], 0
    for record in in_column(sweep, row, column):
        curve = record.curves.get(f"val/{sweep.measure}") if record.results else None
        if curve is None:
            continue
        scale = sweep.main.scale
        reached = [step for step, value in zip(curve.steps, curve.values, strict=True) if value * scale >= sweep.solved]
        most = max(most, record.steps)
        runs.append((record, float(reached[0]) if reached else math.inf))
    return _spread(runs, lambda value: f"{value:,.0f}" if math.isfinite(value) else f"> {most:,}")


def _cost_entry(records: Sequence[RunRecord]) -> Entry:
    runs = [(record, record.metrics.get("seconds_a_step")) for record in records]
    values = [1000 * value for _, value in runs if value is not None]
    return Entry(f"{median(values):.1f}", runs=tuple(runs)) if values else Entry("–", runs=tuple(runs))


def _spread(runs: Sequence[tuple[RunRecord, float | None]], show: Callable[[float], str]) -> Entry:
    """Return the entry of the median of runs, with the smallest and the largest value if they print otherwise."""
    values = sorted(value for _, value in runs if value is not None)
    if not values:
        return Entry("–", runs=tuple(runs))
    middle, ends = show(median(values)), (show(values[0]), show(values[-1]))
    text = middle if {*ends} == {middle} else f"{middle} ({ends[0]} to {ends[1]})"
    return Entry(text, runs=tuple(runs), mean=median(values))
