"""The layout "groups": the measure of each row in groups of test examples, such as by their length.

A task logs the measure of a group under a name with a number and what it counts: accuracy_7_operators.
"""

import re
from collections.abc import Sequence

from gyral.core.measures import Measure
from gyral.reports.catalogue import Row, Sweep
from gyral.reports.tables.entries import (
    Entry,
    Table,
    TableRow,
    mark_best,
    parameters_entry,
    published_entry,
    result_of,
    stacked_entry,
)
from gyral.reports.tables.labels import caption, common_overrides, label
from gyral.reports.tables.marks import marks_of
from gyral.runs.run_record import RunRecord


def groups_of(measure: str, records: Sequence[RunRecord]) -> tuple[str, list[int]]:
    """Return what the numbers of the groups count, such as "operators", and the numbers in increasing order."""
    pattern = re.compile(rf"test/{re.escape(measure)}_(\d+)_([a-z]+)")
    names = {name for record in records for name in record.results or {}}
    found = [match for name in names if (match := pattern.fullmatch(name))]
    return next((match[2] for match in found), "groups"), sorted({int(match[1]) for match in found})


def published_groups(paper: dict[str, object], measure: str) -> dict[int, float]:
    """Return the published values of a row by the number of the group."""
    values = paper.get(measure)
    return {int(number): float(value) for number, value in values.items()} if isinstance(values, dict) else {}


def groups_table(sweep: Sweep, rows: list[Row]) -> list[Table]:
    """Return a table with a line for each group and a column for each row of the sweep that has runs, or for all
    rows if none has.

    A second table has published values of models that the sweep does not train, if there are any.
    """
    trained = [row for row in rows if not sweep.is_published_only(row)]
    shown = [row for row in trained if row.records] or trained
    measure = sweep.main
    unit, numbers = groups_of(sweep.measure, [record for row in shown for record in row.records])
    published = [published_groups(row.paper, sweep.measure) for row in shown]
    numbers = sorted({*numbers, *(number for own in published for number in own)})
    names = {"all": f"test/{measure.name}"}
    names |= {str(number): f"test/{measure.name}_{number}_{unit}" for number in numbers}
    body: list[TableRow] = []
    for line, name in names.items():
        pairs = zip(shown, published, strict=True)
        entries = [
            _entry(sweep, row.records, name, own.get(int(line)) if line != "all" else None) for row, own in pairs
        ]
        body.append((line, tuple(mark_best(entries, measure.higher_is_better))))
    body.append(("parameters", tuple(parameters_entry(row.records) for row in shown)))
    labels = [label(row, rows).replace(", ", "\n") for row in shown]
    tables = [Table(sweep.title, caption(common_overrides(rows)), (unit, *labels), body)]
    if references := [row for row in rows if sweep.is_published_only(row)]:
        tables.append(_published_table(references, measure, unit))
    return tables


def _entry(sweep: Sweep, records: list[RunRecord], name: str, published: float | None) -> Entry:
    """Return the entry of a result beside the published value."""
    value = result_of(name, sweep.main.scale)
    missing = [record.state for record in records if not record.results]
    runs = [(record, value(record)) for record in records]
    return stacked_entry(runs, sweep.main.digits, marks_of(records), missing, published)


def _published_table(rows: Sequence[Row], measure: Measure, unit: str) -> Table:
    """Return the published values of rows that the sweep does not train."""
    published = {row.name: published_groups(row.paper, measure.name) for row in rows}
    numbers = sorted({number for values in published.values() for number in values})
    body = [
        (name, tuple(published_entry(values.get(number), measure.digits) for number in numbers))
        for name, values in published.items()
    ]
    return Table("", "", (f"published, by {unit}", *map(str, numbers)), body)
