"""Marks of numbers that come from other data than the row names, with their footnotes."""

from collections.abc import Sequence

from gyral.reports.catalogue import Row
from gyral.runs.run_record import RunRecord, remarks_of

TRANSCRIBED = ("‡", "transcribed from an earlier table; the run directory does not exist any more")


def marks_of(records: Sequence[RunRecord]) -> str:
    """Return the marks of the remarks that apply to at least one of the runs."""
    applied = (r for r in remarks_of(records) if any(record.metrics.get(f"test/{r.name}") for record in records))
    marks = "".join(dict.fromkeys(remark.mark for remark in applied))
    return marks + TRANSCRIBED[0] * any(record.transcribed for record in records)


def marked(number: str, records: Sequence[RunRecord]) -> str:
    """Return a printed number, such as "12.3 ± 0.4", with the marks of its runs behind the mean."""
    mean, space, deviation = number.partition(" ")
    return f"{mean}{marks_of(records)}{space}{deviation}" if number else ""


def mark_footnotes(rows: Sequence[Row]) -> list[str]:
    """Return a footnote for each mark that the numbers of some row have."""
    found = "".join(marks_of(row.runs) for row in rows)
    remarks = remarks_of(record for row in rows for record in row.runs)
    meanings = dict.fromkeys([*((remark.mark, remark.footnote) for remark in remarks), TRANSCRIBED])
    return [f"{mark} {meaning}" for mark, meaning in meanings if mark in found]
