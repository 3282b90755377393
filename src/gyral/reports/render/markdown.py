"""A report in Markdown. Imports no torch."""

import re
from collections.abc import Sequence
from typing import Any

from gyral.core.escaping import escape_markdown
from gyral.reports.render.text import one_line, runs_table
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Entry


def render(sections: Sequence[Section], notes: Sequence[str], with_runs: bool, **_: Any) -> str:
    """Return a report in Markdown.

    Args:
        sections: its sections.
        notes: lines about runs that cannot be read.
        with_runs: whether to list the runs behind the numbers.
    """
    parts = [part for section in sections for part in _section(section, with_runs)]
    if notes:
        parts.append("\n".join(f"- {escape_markdown(line)}" for line in notes))
    return "\n\n".join(parts) + "\n"


def _section(section: Section, with_runs: bool, **_: Any) -> list[str]:
    parts = [f"## {escape_markdown(section.title)}"]
    several = sum(bool(table.title) for table in section.tables) > 1
    for number, table in enumerate(section.tables):
        lines = [[escape_markdown(one_line(label)), *map(_entry, entries)] for label, entries in table.rows]
        if number and table.title:
            parts.append(f"### {escape_markdown(table.title)}")
        parts.append(_table([*map(escape_markdown, table.heads)], lines, table.prose))
        if several and table.caption:
            parts.append(escape_markdown(f"{table.caption}."))
    if section.tables and section.tables[0].caption and not several:
        parts.append(escape_markdown(f"{section.tables[0].caption}."))
    parts += map(escape_markdown, section.footnotes)
    if with_runs:
        parts += ["### Runs", _runs_table(section)]
    if section.shortfall:
        parts.append(escape_markdown(section.shortfall))
    if section.stopped:
        parts.append("\n".join(f"- {escape_markdown(line)}" for line in section.stopped))
    if section.commands:
        commands = "\n".join(section.commands)
        fence = max(("```", *(f"`{ticks}" for ticks in re.findall("`+", commands))), key=len)
        parts.append(f"To run them:\n\n{fence}bash\n{commands}\n{fence}")
    return parts


def _runs_table(section: Section) -> str:
    """Return the table of the runs; commands are code."""
    heads, rows = runs_table(section)
    lines = [[*map(escape_markdown, entries), _code(command)] for *entries, command in rows]
    return _table([*map(escape_markdown, heads)], lines, prose=True)


def _table(heads: list[str], rows: list[list[str]], prose: bool) -> str:
    def line(entries: list[str]) -> str:
        return f"| {' | '.join(entries)} |"

    rule = ["---", *["---:"] * (len(heads) - 1)]
    if prose:
        rule[-1] = "---"
    return "\n".join((line(heads), f"| {' | '.join(rule)} |", *map(line, rows)))


def _entry(entry: Entry) -> str:
    text, line = one_line(entry.text), entry.line
    if not entry.best:
        return escape_markdown(line)
    return f"**{escape_markdown(text)}**{escape_markdown(line.removeprefix(text))}"


def _code(text: str) -> str:
    """Return a text for the entry of a table, as code if its characters can be kept there."""
    escaped = text.replace("|", r"\|")
    return escape_markdown(text) if set("`\\\n\r") & set(text) else f"`{escaped}`"
