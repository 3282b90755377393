"""Text that several formats share."""

from collections.abc import Iterator

from gyral.reports.tables.cells import TableCell
from gyral.reports.tables.sections import Section
from gyral.runs.run_record import RunRecord


def one_line(label: str) -> str:
    """Return the lines of a row's name or of a cell as one."""
    return ", ".join(label.split("\n"))


def cell_line(cell: TableCell) -> str:
    """Return a cell with its notes as one line."""
    notes = "; ".join((*cell.notes, *cell.missing))
    text = one_line(cell.text)
    return f"{text} ({notes})" if text and notes else text or notes


def run_line(record: RunRecord) -> str:
    """Return the origin of a run in one line."""
    origin = record.provenance
    identity = f"W&B {origin.identity or 'unknown'}"
    parts = (f"seed {record.seed}", record.state, record.place, f"commit {origin.code}", identity)
    return ", ".join((*parts, origin.started) if origin.started else parts)


def labelled_runs(section: Section) -> Iterator[tuple[str, RunRecord]]:
    """Yield each run of a section with the name of its row."""
    for row, label in zip(section.rows, section.labels, strict=True):
        for record in row.records:
            yield one_line(label), record


def printable(text: str) -> str:
    """Return a text with � in place of control characters, which terminals obey, and of bytes that are no text.

    The names of runs, their overrides and the reasons of failures may contain any.
    """
    return "".join(sign if sign.isprintable() or sign in "\n\N{NO-BREAK SPACE}" else "\ufffd" for sign in text)
