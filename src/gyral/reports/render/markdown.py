"""A report in Markdown. Imports no torch."""

import re
from collections.abc import Sequence
from dataclasses import replace

from gyral.reports.render.text import cell_line, labelled_runs, one_line
from gyral.reports.tables.cells import TableCell
from gyral.reports.tables.sections import Section, describe_stopped

BOLD = "\0"  # where bold text begins and ends, until the text around is escaped


def render(sections: Sequence[Section], notes: Sequence[str], with_runs: bool) -> str:
    """Return a report in Markdown.

    Args:
        sections: its sections.
        notes: lines about runs that cannot be read.
        with_runs: whether to list the runs behind the numbers.
    """
    parts = [part for section in sections for part in _section(section, with_runs)]
    if notes:
        parts.append("\n".join(f"- {_escape(line)}" for line in notes))
    return "\n\n".join(parts) + "\n"


def _section(section: Section, with_runs: bool) -> list[str]:
    parts = [f"## {_escape(section.title)}"]
    for table in section.tables:
        lines = [[one_line(label), *map(_cell, cells)] for label, cells in table.rows]
        heads = [" ".join(head.split("\n")) for head in table.heads]
        parts.append(_table(heads, lines, table.prose))
    parts += [_escape(f"{section.tables[0].caption}."), *map(_escape, section.footnotes)]
    if with_runs:
        parts += ["### Runs", _runs_table(section)]
    if section.shortfall:
        parts.append(section.shortfall)
    if section.stopped:
        parts.append("\n".join(f"- {_escape(describe_stopped(record))}" for record in section.stopped))
    if section.commands:
        parts.append("To run them:\n\n```bash\n" + "\n".join(section.commands) + "\n```")
    return parts


def _runs_table(section: Section) -> str:
    rows = []
    for label, record in labelled_runs(section):
        origin = record.provenance
        command = f"`{origin.command or 'unknown'}`"
        rows.append([label, record.seed, record.state, record.place, origin.code, origin.identity, command])
    heads = ["row", "seed", "state", "run directory", "commit", "W&B id", "command"]
    return _table(heads, rows, prose=True)


def _table(heads: list[str], rows: list[list[str]], prose: bool) -> str:
    def line(cells: list[str]) -> str:
        # code keeps its characters, except for the bar, which would end the cell
        escaped = [cell.replace("|", r"\|") if cell.startswith("`") else _escape(cell) for cell in cells]
        return f"| {' | '.join(escaped)} |".replace(BOLD, "**")

    rule = ["---", *["---:"] * (len(heads) - 1)]
    if prose:
        rule[-1] = "---"
    return "\n".join((line(heads), f"| {' | '.join(rule)} |", *map(line, rows)))


def _cell(cell: TableCell) -> str:
    text = one_line(cell.text)
    return cell_line(replace(cell, text=f"{BOLD}{text}{BOLD}")) if cell.best else cell_line(cell)


def _escape(text: str) -> str:
    return re.sub(r"([\\|*_<>`\[\]])", r"\\\1", text)
