"""Marks of numbers that come from other data than the row names, with their footnotes."""

from collections.abc import Sequence

from gyral.reports.catalogue import Row
from gyral.runs.run_record import RunRecord

# for each result that reports other data than the row's, the mark of the number and its footnote
MARKS = {
    "stand_ins": ("°", "trained on the 1k file, because the 10k file does not exist"),
    "generated": ("*", "on GENERATED stories, which are not from bAbI"),
    "substitute": ("†", "on a SUBSTITUTE for the paper's data, so that no published value compares with it"),
}
TRANSCRIBED = ("‡", "transcribed from an earlier table; the run directory does not exist any more")


def marks_of(records: Sequence[RunRecord]) -> str:
    """Return the marks of the results of runs."""
    marks = "".join(
        mark for name, (mark, _) in MARKS.items() if any(record.metrics.get(f"test/{name}") for record in records)
    )
    return marks + TRANSCRIBED[0] * any(record.transcribed for record in records)


def marked(number: str, records: Sequence[RunRecord]) -> str:
    """Return a printed number, such as "12.3 ± 0.4", with the marks of its runs behind the mean."""
    mean, space, deviation = number.partition(" ")
    return f"{mean}{marks_of(records)}{space}{deviation}" if number else ""


def mark_footnotes(rows: Sequence[Row]) -> list[str]:
    """Return a footnote for each mark that the numbers of some row have."""
    found = "".join(marks_of(row.records) for row in rows)
    return [f"{mark} {meaning}" for mark, meaning in (*MARKS.values(), TRANSCRIBED) if mark in found]
