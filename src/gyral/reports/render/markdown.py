"""A report in Markdown. Imports no torch."""

import re
from collections.abc import Sequence

from gyral.reports.render.text import cell_line, one_line, runs_table
from gyral.reports.tables.cells import TableCell
from gyral.reports.tables.sections import Section, describe_stopped


def render(sections: Sequence[Section], notes: Sequence[str], with_runs: bool) -> str:
    """Return a report in Markdown.

    Args:
        sections: its sections.
        notes: lines about runs that cannot be read.
        with_runs: whether to list the runs behind the numbers.
    """
    parts = [part for section in sections for part in _section(section, with_runs)]
    if notes:
        parts.append("\n".join(f"- {escape(line)}" for line in notes))
    return "\n\n".join(parts) + "\n"


def _section(section: Section, with_runs: bool) -> list[str]:
    parts = [f"## {escape(section.title)}"]
    for table in section.tables:
        lines = [[escape(one_line(label)), *map(_cell, cells)] for label, cells in table.rows]
        parts.append(_table([*map(escape, table.heads)], lines, table.prose))
    parts += [escape(f"{section.tables[0].caption}."), *map(escape, section.footnotes)]
    if with_runs:
        parts += ["### Runs", _runs_table(section)]
    if section.shortfall:
        parts.append(section.shortfall)
    if section.stopped:
        parts.append("\n".join(f"- {escape(describe_stopped(record))}" for record in section.stopped))
    if section.commands:
        commands = "\n".join(section.commands)
        fence = max(("```", *(f"`{ticks}" for ticks in re.findall("`+", commands))), key=len)
        parts.append(f"To run them:\n\n{fence}bash\n{commands}\n{fence}")
    return parts


def _runs_table(section: Section) -> str:
    """Return the table of the runs; commands are code."""
    heads, rows = runs_table(section)
    lines = [[*map(escape, cells), _code(command)] for *cells, command in rows]
    return _table(heads, lines, prose=True)


def _table(heads: list[str], rows: list[list[str]], prose: bool) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = ["---", *["---:"] * (len(heads) - 1)]
    if prose:
        rule[-1] = "---"
    return "\n".join((line(heads), f"| {' | '.join(rule)} |", *map(line, rows)))


def _cell(cell: TableCell) -> str:
    text, line = one_line(cell.text), cell_line(cell)
    return f"**{escape(text)}**{escape(line.removeprefix(text))}" if cell.best else escape(line)


def _code(text: str) -> str:
    """Return a text for the cell of a table, as code if its characters can be kept there."""
    escaped = text.replace("|", r"\|")
    return escape(text) if set("`\\\n\r") & set(text) else f"`{escaped}`"


def escape(text: str) -> str:
    """Return a text as one line in which no sign is markup, at its beginning neither a rule nor an item of a list."""
    text = re.sub(r"([\\|*_<>`\[\]#~$]|&(?=#?\w+;))", r"\\\1", " ".join(text.splitlines()))
    return re.sub(r"^(\s*\d*)([-+.)])(?=\s|-|$)", r"\1\\\2", text)
