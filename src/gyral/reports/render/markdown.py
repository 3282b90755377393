"""A report in Markdown. Imports no torch."""

import re
from collections.abc import Sequence

from gyral.reports.render.text import cell_line, labelled_runs, one_line
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
        parts.append("\n".join(f"- {_escape(line)}" for line in notes))
    return "\n\n".join(parts) + "\n"


def _section(section: Section, with_runs: bool) -> list[str]:
    parts = [f"## {_escape(section.title)}"]
    for table in section.tables:
        lines = [[_escape(one_line(label)), *map(_cell, cells)] for label, cells in table.rows]
        parts.append(_table([*map(_escape, table.heads)], lines, table.prose))
    parts += [_escape(f"{section.tables[0].caption}."), *map(_escape, section.footnotes)]
    if with_runs:
        parts += ["### Runs", _runs_table(section)]
    if section.shortfall:
        parts.append(section.shortfall)
    if section.stopped:
        parts.append("\n".join(f"- {_escape(describe_stopped(record))}" for record in section.stopped))
    if section.commands:
        commands = "\n".join(section.commands)
        fence = max(("```", *(f"`{ticks}" for ticks in re.findall("`+", commands))), key=len)
        parts.append(f"To run them:\n\n{fence}bash\n{commands}\n{fence}")
    return parts


def _runs_table(section: Section) -> str:
    """Return the table of the runs with their results; columns without any entry are left out."""
    rows = []
    for label, record in labelled_runs(section):
        origin = record.provenance
        values = [(measure, measure.value(record.results)) for measure in section.measures]
        numbers = ["" if value is None else f"{value:.{measure.digits}f}" for measure, value in values]
        state = "" if record.results else record.state
        texts = [label, record.seed, state, *numbers, f"{record.steps:,}" if record.steps else "", record.place]
        rows.append([*map(_escape, [*texts, origin.code, origin.identity]), _code(origin.command or "unknown")])
    measured = [measure.title for measure in section.measures]
    heads = ["row", "seed", "state", *measured, "steps", "run", "commit", "W&B id", "command"]
    shown = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    return _table([heads[index] for index in shown], [[row[index] for index in shown] for row in rows], prose=True)


def _table(heads: list[str], rows: list[list[str]], prose: bool) -> str:
    def line(cells: list[str]) -> str:
        return f"| {' | '.join(cells)} |"

    rule = ["---", *["---:"] * (len(heads) - 1)]
    if prose:
        rule[-1] = "---"
    return "\n".join((line(heads), f"| {' | '.join(rule)} |", *map(line, rows)))


def _cell(cell: TableCell) -> str:
    text, line = one_line(cell.text), cell_line(cell)
    return f"**{_escape(text)}**{_escape(line.removeprefix(text))}" if cell.best else _escape(line)


def _code(text: str) -> str:
    """Return a text for the cell of a table, as code if its characters can be kept there."""
    escaped = text.replace("|", r"\|")
    return _escape(text) if set("`\\\n\r") & set(text) else f"`{escaped}`"


def _escape(text: str) -> str:
    """Return a text as one line in which no sign is markup, at its beginning neither a rule nor an item of a list."""
    text = re.sub(r"([\\|*_<>`\[\]#~$]|&(?=#?\w+;))", r"\\\1", " ".join(text.splitlines()))
    return re.sub(r"^(\s*\d*)([-+.)])(?=\s|-|$)", r"\1\\\2", text)
