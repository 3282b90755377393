"""The published numbers of the row of a table that one run belongs to. Imports no torch."""

from pathlib import Path

from gyral.reports.catalogue import containing
from gyral.reports.rows import rows_of
from gyral.runs.records import read_run


def published_results(directory: Path) -> dict[str, str]:
    """Return the published values for the row of a run, by the name of the result: {"test/accuracy": "61.0"}.

    The name of the paper's finding, where it gives no number, is "finding". A question mark is the mark of values that
    nobody has compared with the paper. A run of no table, or of a row without published values, has none.
    """
    record = read_run(directory)
    if not record.results:
        return {}
    for sweep in containing([record.experiment]):
        column = sweep.column_of(record)
        for row in (row for row in rows_of(sweep, [record]) if record in row.runs):
            numbers = {
                f"test/{measure.name}": f"{value:.{measure.digits}f} {measure.unit}".rstrip() + row.mark
                for measure in record.measures
                if isinstance(value := row.published(measure.name, column), int | float)
            }
            size = row.published("parameters")
            if isinstance(size, int | float):
                numbers["parameters"] = f"{size:,.0f}{row.mark}"
            if row.paper.get("finding"):
                numbers["finding"] = f"{row.paper['finding']}{row.mark}"
            if numbers:
                return numbers
    return {}
