"""The layout "curves": the results of each row next to the finding of the paper."""

from gyral.reports.catalogue import Row, Sweep
from gyral.reports.tables.entries import (
    Entry,
    Table,
    TableRow,
    loss_ratio,
    mark_best_of_column,
    mean_entry,
    move_common_notes,
    result_of,
    without_empty_rows,
)
from gyral.reports.tables.labels import caption, common_overrides, label
from gyral.reports.tables.paper_table import measured_entry


def curves_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the results of each row next to the finding of the paper."""
    body: list[TableRow] = []
    for row in rows:
        entries = (
            mean_entry(row.records, result_of("test/loss"), 4, with_deviation=False),
            mean_entry(row.records, loss_ratio, 4, with_deviation=False),
            measured_entry(sweep, sweep.main, row.records, others=row.others),
            Entry(row.paper.get("finding", "–")),
        )
        body.append((label(row, rows), entries))
    body = without_empty_rows(body)
    for column, higher_is_better in enumerate((False, False, sweep.main.higher_is_better)):
        body = mark_best_of_column(body, column, higher_is_better)
    body, runs = move_common_notes(body)
    measured = f"{sweep.main.label} on\ntest" + (f" in {sweep.main.unit}" if sweep.main.unit else "")
    heads = ("row", "test loss\n(nats)", "loss /\nbaseline", measured, "finding of the paper")
    return Table(sweep.title, caption(common_overrides(rows), runs), heads, body, prose=True, details=heads[-1:])
