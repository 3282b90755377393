"""Marks of numbers that come from other data than the row names, with their footnotes."""

from collections.abc import Sequence

from gyral.reports.catalogue import Row
from gyral.runs.records import RunRecord

# for each result that reports other data than the row's, the mark of the number and its footnote
MARKS = {
    "stand_ins": ("°", "trained on the 1k file, because the 10k file does not exist"),
    "generated": ("*", "on GENERATED stories, which are not from bAbI"),
    "substitute": ("†", "on a SUBSTITUTE for the paper's data, so that no published value compares with it"),
}


def marks_of(records: Sequence[RunRecord]) -> str:
    """Return the marks of the results of runs."""
    return "".join(
        mark
        for name, (mark, _) in MARKS.items()
        if any((record.results or {}).get(f"test/{name}") for record in records)
    )


def mark_footnotes(rows: Sequence[Row]) -> list[str]:
    """Return a footnote for each mark that the numbers of some row have."""
    found = "".join(marks_of(row.records) for row in rows)
    return [f"{mark} {meaning}" for mark, meaning in MARKS.values() if mark in found]
