"""The layout "table": the measures of each row next to the published values."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

from gyral.core.measures import Measure
from gyral.reports.catalogue import Row, Sweep, by_budget, column_of, columns_of, in_column
from gyral.reports.tables.entries import (
    NOTHING,
    Entry,
    Table,
    TableRow,
    describe_seeds,
    format_thousands,
    mark_best_of_column,
    mean_entry,
    move_common_notes,
    parameters_entry,
    published_entry,
    value_of,
    with_notes,
    without_empty_rows,
)
from gyral.reports.tables.labels import caption, common_overrides, label
from gyral.reports.tables.marks import marked
from gyral.reports.tables.references import reference_rows
from gyral.runs.run_record import RunRecord


def paper_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the sweep's measures and the size of each row next to the published values, for each value of its column.

    Without published values, the table has no columns for them. The last rows are references that need no training.
    """
    columns = columns_of(sweep, rows)
    measures = [sweep.measures[name] for name in (sweep.measure, *sweep.also)]
    if sweep.column:
        shown = [f"{sweep.column_name}={column}" for column in columns]
    else:
        shown = [measure.label for measure in measures] if sweep.also else ["measured"]
    heads = ("row", *(head for title in shown for head in (title, "paper")), "parameters", "paper")
    body: list[TableRow] = []
    for row in rows:
        entries: list[Entry] = []
        for measure, column in itertools.product(measures, columns):
            published = row.paper.get(measure.name)
            if isinstance(published, dict):
                published = published.get(column)
            others = [record for record in row.others if column_of(sweep, record) == column]
            measured = measured_entry(sweep, measure, in_column(sweep, row, column), published, others)
            entries += [measured, published_entry(published, measure.digits)]
        in_order = [record for column in columns for record in in_column(sweep, row, column)]
        parameters = row.paper.get("parameters")
        size = NOTHING if parameters is None else Entry(format_thousands(parameters))
        body.append((label(row, rows), (*entries, parameters_entry(in_order, parameters), size)))
    body = without_empty_rows(body)
    for index, (measure, _) in enumerate(itertools.product(measures, columns)):
        body = mark_best_of_column(body, 2 * index, measure.higher_is_better)
    body, runs = move_common_notes([(name, _note_runs_once(entries)) for name, entries in body])
    published_names = {sweep.measure, *sweep.also, "parameters"}
    if not any(published_names & set(paper) for paper in sweep.papers.values()):  # nothing is published
        heads, body = (heads[0], *heads[1::2]), [(name, entries[::2]) for name, entries in body]
    empty = (NOTHING,) * (len(heads) - 2)
    body += [(name, (entry, *empty)) for name, entry in reference_rows(sweep, rows)]
    return Table(sweep.title, caption(common_overrides(rows), runs), heads, body)


def _note_runs_once(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the entries of a row: the seeds and steps of the same runs are noted at their first number alone."""
    noted: list[list[RunRecord]] = []
    result = []
    for entry in entries:
        runs = [record for record, _ in entry.runs]
        result.append(replace(entry, notes=(), missing=()) if entry.text and runs in noted else entry)
        noted += [runs] if entry.text and runs else []
    return tuple(result)


def measured_entry(
    sweep: Sweep,
    measure: Measure,
    records: list[RunRecord],
    paper: float | None = None,
    others: Sequence[RunRecord] = (),
) -> Entry:
    """Return the entry of a measure on the test split, with its seeds and steps, and the seeds that are missing.

    Args:
        sweep: the sweep.
        measure: the measure.
        records: the runs.
        paper: the published value.
        others: runs with other budgets, see `Row`.
    """
    if not records:
        return replace(NOTHING, paper=paper)
    entry = replace(noted_entry(records, measure), paper=paper)
    if not entry.values and any(record.results for record in records):  # the task of this row has no such measure
        return NOTHING
    absent = absent_seeds(records, sweep.axes["seed"])
    return replace(
        entry,
        missing=(*entry.missing, f"{describe_seeds(absent)} missing") if absent else entry.missing,
        others=tuple(measured_entry(sweep, measure, runs) for runs in by_budget(others)),
    )


def noted_entry(records: list[RunRecord], measure: Measure) -> Entry:
    """Return the entry of a measure on the test split with its seeds and steps; its text is empty without a value."""
    entry = mean_entry(records, value_of(measure), measure.digits)
    return with_notes(replace(entry, text=marked(entry.text, records) if entry.values else ""), records)


def absent_seeds(records: list[RunRecord], seeds: list[str]) -> list[str]:
    """Return the seeds that no run has."""
    there = {record.seed for record in records}
    return [seed for seed in seeds if seed not in there]
