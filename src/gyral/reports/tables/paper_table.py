"""The layouts "table" and "curves": the measures of each row next to the published values or the paper's finding."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from gyral.core.measures import Measure
from gyral.reports.catalogue import Sweep
from gyral.reports.numbers import RATIO, Numbers, Runs
from gyral.reports.rows import Row, by_budget, columns_of, common_overrides, in_column
from gyral.reports.tables.entries import (
    absent_seeds,
    describe_seeds,
    mean_entry,
    noted_entry,
    parameters_entry,
    published_entry,
)
from gyral.reports.tables.references import reference_rows
from gyral.reports.tables.table import NOTHING, Column, Entry, Table
from gyral.runs.run_record import RunRecord


def paper_table(sweep: Sweep, rows: list[Row], numbers: Numbers) -> Table:
    """Return the sweep's measures and the size of each row next to the published values, for each value of its column.

    Without published values, the table has no columns for them. The last rows are references that need no training.
    """
    measures = [sweep.measures[name] for name in (sweep.measure, *sweep.also)]
    columns = columns_of(sweep, rows)
    published_names = {sweep.measure, *sweep.also, "parameters"}
    is_published = any(published_names & set(paper) for paper in sweep.papers.values())
    shown = []
    for measure, column in itertools.product(measures, columns):
        own = measure.label if sweep.also else "measured"
        head = sweep.head(column) if sweep.column else own
        measured = [measured_entry(sweep, numbers, row, measure, column) for row in rows]
        shown.append(Column(head, measured, measure.higher_is_better))
        if is_published:
            published = [published_entry(row.published(measure.name, column), measure.digits, row.mark) for row in rows]
            shown.append(Column("paper", published))
    in_order = [[record for column in columns for record in in_column(sweep, row, column)] for row in rows]
    sizes = [row.published("parameters") for row in rows]
    shown.append(Column("parameters", [*map(parameters_entry, in_order, sizes)]))
    if is_published:
        texts = [
            "–" if size is None else f"{format_thousands(size)}{row.mark}"
            for row, size in zip(rows, sizes, strict=True)
        ]
        shown.append(Column("paper", [*map(Entry, texts)]))
    table = Table(sweep.title, [row.label for row in rows], shown).without_empty_rows().with_best()
    noted_once = [(name, note_runs_once(entries)) for name, entries in table.rows]
    table = table.with_rows(noted_once).with_common_notes(common_overrides(rows))
    empty = (NOTHING,) * (len(shown) - 1)
    return table.with_rows([*table.rows, *((name, (entry, *empty)) for name, entry in reference_rows(sweep, rows))])


def curves_table(sweep: Sweep, rows: list[Row], numbers: Numbers) -> Table:
    """Return the results of each row next to the finding of the paper."""
    measure = sweep.main
    losses, ratios = (
        [mean_entry(numbers.of(row.records, metric), 4, with_deviation=False) for row in rows]
        for metric in ("test/loss", RATIO)
    )
    measured = f"{measure.label} on\ntest" + (f" in {measure.unit}" if measure.unit else "")
    columns = [
        Column("test loss\n(nats)", losses, higher_is_better=False),
        Column("loss /\nbaseline", ratios, higher_is_better=False),
        Column(measured, [measured_entry(sweep, numbers, row, measure) for row in rows], measure.higher_is_better),
        Column("finding of the paper", [_finding(row) for row in rows], None, True, True),
    ]
    table = Table(sweep.title, [row.label for row in rows], columns).without_empty_rows().with_best()
    return table.with_common_notes(common_overrides(rows))


def _finding(row: Row) -> Entry:
    return Entry(f"{row.paper['finding']}{row.mark}") if "finding" in row.paper else NOTHING


def measured_entry(sweep: Sweep, numbers: Numbers, row: Row, measure: Measure, column: str = "") -> Entry:
    """Return the entry of a measure on the test split, with its seeds and steps, and the seeds that are missing."""
    metric = f"test/{measure.name}"
    entry = _measured(sweep, numbers.of(row.records, metric, column), measure)
    budgets = by_budget(record for record, _ in numbers.of(row.others, metric, column)) if entry.runs else []
    others = tuple(_measured(sweep, numbers.of(records, metric, column), measure) for records in budgets)
    return replace(entry, paper=row.published(measure.name, column), others=others)


def _measured(sweep: Sweep, runs: Runs, measure: Measure) -> Entry:
    records = [record for record, _ in runs]
    entry = noted_entry(runs, measure)
    if not entry.values and (not runs or any(record.results for record in records)):  # the task has no such measure
        return NOTHING
    absent = absent_seeds(records, sweep.axes["seed"])
    return replace(entry, missing=(*entry.missing, f"{describe_seeds(absent)} missing")) if absent else entry


def note_runs_once(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a row: the seeds and steps of the same runs are noted at their first number alone."""
    noted: list[list[RunRecord]] = []
    result = []
    for entry in entries:
        runs = [record for record, _ in entry.runs]
        result.append(replace(entry, notes=(), missing=()) if entry.text and runs in noted else entry)
        noted += [runs] if entry.text and runs else []
    return result


def format_thousands(count: float) -> str:
    """Return a number of parameters as papers print it: 14k, 7.2M."""
    return f"{count / 1000:.6g}k" if count < 1e6 else f"{count / 1e6:.7g}M"
