"""Writes a report to a file, in the format of the file's suffix. Imports no torch, and the format alone."""

from pathlib import Path

from gyral.core.errors import printable
from gyral.core.files import write_atomically
from gyral.reports.tables.sections import Section

SUFFIXES = (".html", ".md", ".tex", ".csv")


def write(
    path: Path, title: str, sections: list[Section], notes: list[str], with_runs: bool, width: str | None = None
) -> None:
    """Write a report to a file.

    Args:
        path: the file, with one of `SUFFIXES`.
        title: title of a page with several sections.
        sections: sections of the report.
        notes: lines about runs that cannot be read.
        with_runs: whether Markdown lists the runs behind the numbers, as the other formats always do.
        width: "column" or "page", the width of tables in LaTeX; None for a page with one column.
    """
    if path.suffix == ".html":
        from gyral.reports.render import html

        text = html.render(title, sections, notes)
    elif path.suffix == ".md":
        from gyral.reports.render import markdown

        text = markdown.render(sections, notes, with_runs)
    elif path.suffix == ".tex":
        from gyral.reports.render import latex

        text = latex.render(sections, notes, title, width)
    else:
        from gyral.reports.render import csv

        text = csv.render(sections, notes)
    write_atomically(path, printable(text))
