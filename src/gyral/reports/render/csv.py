"""The numbers of a report as CSV. Imports no torch."""

from collections.abc import Iterator, Sequence
from typing import Any

from gyral.core.files import csv_line
from gyral.reports.render.text import one_line
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Entry

COLUMNS = (
    *("report", "row", "setting", "column", "mean", "deviation", "runs", "paper"),
    *("seed", "value", "state", "reason", "steps", "place", "commit", "uncommitted_changes", "command", "overrides"),
    *("wandb_id", "started", "host"),
)


def render(sections: Sequence[Section], notes: Sequence[str] = (), **_: Any) -> str:
    """Return every number of a report with a line per run behind it, or one line if it has no run.

    Args:
        sections: its sections.
        notes: lines about runs that cannot be read; each is a line with the state "unreadable".
    """
    lines: list[dict[str, Any]] = []
    for section in sections:
        settings = {row.label: " ".join((f"experiment={row.experiment}" * bool(row.experiment), *row.setting)).strip()
                    for row in section.rows}  # fmt: skip
        entries = ((label, *pair) for table in section.tables for label, own in table.rows
                   for pair in zip(table.heads[1:], own, strict=True))  # fmt: skip
        for label, head, entry in entries:
            is_empty = entry.text in ("", "–") and entry.paper is None
            # the published value is in the column `paper` of the measured one
            if entry.runs or not (is_empty or head == "paper"):
                place = {"report": section.title, "row": one_line(label), "column": " ".join(head.split("\n"))}
                lines += (place | {"setting": settings.get(label)} | line for line in _lines(entry))
    lines += ({"state": "unreadable", "reason": note} for note in notes)
    texts = ([_text(line.get(column)) for column in COLUMNS] for line in lines)
    return "".join(map(csv_line, (COLUMNS, *texts)))


def _text(value: Any) -> Any:
    return "" if value is None else value


def _lines(entry: Entry) -> Iterator[dict[str, Any]]:
    number = {"mean": entry.mean, "deviation": entry.deviation, "runs": len(entry.values), "paper": entry.paper}
    if not entry.runs:
        yield number | {"state": "" if entry.mean is not None else "missing" if entry.text == "–" else entry.line}
    for record, value in entry.runs:
        origin = record.provenance
        yield number | {
            **{"seed": record.seed, "value": value, "state": record.state, "reason": record.reason},
            **{"steps": record.steps, "place": record.place, "commit": origin.commit},
            **{"uncommitted_changes": str(origin.changed).lower(), "command": origin.command},
            **{"overrides": " ".join(record.overrides.values()), "wandb_id": origin.identity},
            **{"started": origin.started, "host": origin.host},
        }
    for others in entry.others:
        yield from _lines(others)
