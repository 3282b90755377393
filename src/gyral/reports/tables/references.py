"""References below the rows of a table: n-gram models, whose scores runs on text log next to their own."""

from gyral.reports.catalogue import Sweep
from gyral.reports.rows import Row
from gyral.reports.tables.entries import mean_entry
from gyral.reports.tables.table import Entry


def reference_rows(sweep: Sweep, rows: list[Row]) -> list[tuple[str, Entry]]:
    """Return the name and the score of each n-gram model of the sweep that a run has logged.

    All runs of a table are on the same text, so the score of the first run that has it is shown.
    """
    measure = sweep.main
    references = []
    for order in sweep.ngrams:
        for record in (record for row in rows for record in row.records):
            value = (record.results or {}).get(sweep.ngram_result(order))
            if value is not None:
                entry = mean_entry([(record, measure.scale * value)], measure.digits)
                references.append((f"{order}-gram (Witten–Bell)", entry))
                break
    return references


def reference_footnotes(sweep: Sweep, rows: list[Row]) -> list[str]:
    """Return a line about the n-gram models of the sweep that no finished run has logged."""
    results = [record.results for row in rows for record in row.records if record.results]
    absent = [o for o in sweep.ngrams if not any(sweep.ngram_result(o) in found for found in results)]
    if not absent or not results:
        return []
    orders = ",".join(map(str, absent))
    return [f"No run has scores of n-gram models; to log them, train a row with task.ngrams=[{orders}]."]
