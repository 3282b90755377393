"""Prints a report to the terminal. Imports no torch."""

from collections.abc import Sequence
from dataclasses import replace

from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from gyral.core.console import Console
from gyral.core.errors import printable
from gyral.reports.render.text import labelled_runs, run_line
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Column, Entry, Table

WIDTH = 100  # characters of a line of a table if the output is not a terminal
LONGEST_NAME = 30  # characters of a word in the name of a row; a longer one is broken
MIN_NUMBER_WIDTH = 13  # up to this width, columns of numbers are not narrowed


def print_section(console: Console, section: Section, with_runs: bool) -> None:
    """Print the tables of a section, its runs on demand, and the runs that are missing with their commands."""
    print_tables(console, section.tables)
    for line in section.footnotes:
        console.print(printable(line), soft_wrap=True)
    if with_runs:
        console.print("Runs", style="bold")
        for label, record in labelled_runs(section):
            lines = filter(None, (f"{label}: {run_line(record)}", record.provenance.command))
            console.print(printable("\n    ".join(lines)), soft_wrap=True)
    for line in section.stopped:
        console.print(printable(line), soft_wrap=True)
    if section.shortfall:
        console.print(printable(" To run them: ".join((section.shortfall, *section.commands[:1]))), soft_wrap=True)
        for command in section.commands[1:]:
            console.print(printable(command), soft_wrap=True)


def print_tables(console: Console, tables: Sequence[Table]) -> None:
    """Print tables. If the output is not a terminal, those that are too wide go on with their next columns below."""
    width = None if console.is_terminal else WIDTH
    for part in (part for table in tables for part in ([table] if width is None else _split(table, width))):
        console.print(terminal_table(part), width=width)


def _split(table: Table, width: int) -> list[Table]:
    """Return parts of a table whose columns, each with the names of the rows, fit into a width if lines are broken."""
    used = first = _name_width(table) + 3
    parts: list[list[Column]] = [[]]
    for column in table.columns:
        texts = [column.head, *(text for entry in column.entries for text in (entry.text, *entry.notes))]
        own = max(5, *map(len, " ".join(texts).split())) + 3
        if used + own > width and parts[-1]:
            parts, used = [*parts, []], first
        parts[-1].append(column)
        used += own
    return [replace(table, columns=own, caption=table.caption if own is parts[-1] else "") for own in parts]


def _name_width(table: Table) -> int:
    return max(12, min(max(map(len, " ".join((table.head, *table.names)).split())), LONGEST_NAME))


def print_lines(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(printable(line), soft_wrap=True)


def terminal_table(table: Table) -> RichTable:
    """Return a table for rich to print."""
    shown = RichTable(
        title=printable(table.title) or None,
        caption=printable(table.caption) or None,
        box=box.HORIZONTALS,
        show_lines=bool(table.title),
        padding=(0, 1, 0, 0),
    )
    rows, prose = table.rows, table.prose
    for index, head in enumerate(map(printable, table.heads)):
        if index == 0 and table.title:
            shown.add_column(head, min_width=_name_width(table), overflow="fold")
        elif prose and index == len(table.heads) - 1:
            shown.add_column(head)
        else:
            column = [entries[index - 1] for _, entries in rows] if index else []
            lines = (line for entry in column for line in (*entry.text.split("\n"), *entry.notes[:1]))
            width = min(max(map(len, lines), default=0), MIN_NUMBER_WIDTH)
            shown.add_column(head, justify="right", min_width=max(5, width))
    for label, entries in rows:
        shown.add_row(printable(label), *map(_entry, entries))
    return shown


def _entry(entry: Entry) -> Text:
    lines = [*map(printable, entry.lines)]
    first = Text(lines[0], style="bold" if entry.best else "") if lines else Text()
    return Text("\n").join([first, *map(Text, lines[1:])])
