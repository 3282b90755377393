"""The layout "curves": the results of each row next to the finding of the paper."""

from gyral.reports.catalogue import Row, Sweep
from gyral.reports.tables.cells import (
    Table,
    TableCell,
    loss_ratio_cell,
    mark_best_of_column,
    move_common_notes,
    result_cell,
)
from gyral.reports.tables.labels import caption, common_overrides, label
from gyral.reports.tables.paper_table import measured_cell


def curves_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the results of each row next to the finding of the paper."""
    body: list[tuple[str, tuple[TableCell, ...]]] = []
    for row in rows:
        cells = (
            result_cell(row.records, "test/loss", 4, with_deviation=False),
            loss_ratio_cell(row.records),
            measured_cell(sweep, sweep.main, row.records),
            TableCell(row.paper.get("finding", "–")),
        )
        body.append((label(row, rows), cells))
    for column, higher_is_better in enumerate((False, False, sweep.main.higher_is_better)):
        body = mark_best_of_column(body, column, higher_is_better)
    body, runs = move_common_notes(body)
    measured = f"{sweep.main.label} on\ntest" + (f" in {sweep.main.unit}" if sweep.main.unit else "")
    heads = ("row", "test loss\n(nats)", "loss /\nbaseline", measured, "finding of the paper")
    return Table(sweep.title, caption(common_overrides(rows), runs), heads, body, prose=True, details=heads[-1:])
