"""The numbers of a report as CSV. Imports no torch."""

from collections.abc import Iterator, Sequence
from typing import Any

from gyral.core.files import csv_line
from gyral.reports.render.text import one_line
from gyral.reports.rows import Row
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Entry

COLUMNS = (
    *("report", "row", "setting", "column", "mean", "deviation", "runs", "paper"),
    *("seed", "value", "state", "reason", "steps", "place", "commit", "uncommitted_changes", "command", "overrides"),
    *("wandb_id", "started", "host"),
)


def render(sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """Return every number of a report with a line per run behind it, or one line if it has no run.

    Args:
        sections: its sections.
        notes: lines about runs that cannot be read; each is a line with the state "unreadable".
    """
    lines: list[dict[str, Any]] = []
    for section in sections:
        settings = {row.label: _setting(row) for row in section.rows}
        for table in section.tables:
            for label, entries in table.rows:
                for head, entry in zip(table.heads[1:], entries, strict=True):
                    is_empty = entry.text in ("", "–") and entry.paper is None
                    # the published value is in the column `paper` of the measured one
                    if not entry.runs and (is_empty or head == "paper"):
                        continue
                    place = {"report": section.title, "row": one_line(label), "column": " ".join(head.split("\n"))}
                    place["setting"] = settings.get(label, "")
                    lines += (place | line for line in _lines(entry))
    lines += ({"state": "unreadable", "reason": note} for note in notes)
    return "".join(map(csv_line, (COLUMNS, *([line.get(column, "") for column in COLUMNS] for line in lines))))


def _setting(row: Row) -> str:
    """Return the experiment and the overrides of a row, as on the command line."""
    return " ".join((*([f"experiment={row.experiment}"] if row.experiment else []), *row.setting))


def _lines(entry: Entry) -> Iterator[dict[str, Any]]:
    number = {
        "mean": "" if entry.mean is None else entry.mean,
        "deviation": "" if entry.deviation is None else entry.deviation,
        "runs": len(entry.values),
        "paper": "" if entry.paper is None else entry.paper,
    }
    if not entry.runs:
        yield number | {"state": "" if entry.mean is not None else "missing" if entry.text == "–" else entry.line}
    for record, value in entry.runs:
        origin = record.provenance
        yield number | {
            "seed": record.seed,
            "value": "" if value is None else value,
            "state": record.state,
            "reason": record.reason or "",
            "steps": record.steps,
            "place": record.place,
            "commit": origin.commit,
            "uncommitted_changes": str(origin.changed).lower(),
            "command": origin.command,
            "overrides": " ".join(record.overrides.values()),
            "wandb_id": origin.identity,
            "started": origin.started,
            "host": origin.host,
        }
    for others in entry.others:
        yield from _lines(others)
