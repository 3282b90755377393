"""The formats of reports, and the choice among them by the suffix of a file. Imports no torch."""

from importlib import import_module
from pathlib import Path
from typing import Any

from gyral.core.errors import printable
from gyral.core.files import write_atomically

FORMATS = {".html": "html", ".md": "markdown", ".tex": "latex", ".csv": "csv"}  # module of each suffix
SUFFIXES = tuple(FORMATS)


def write(
    path: Path, title: str, sections: list[Any], notes: list[str], with_runs: bool, width: str | None = None
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
    module = import_module(f"gyral.reports.render.{FORMATS[path.suffix]}")
    write_atomically(path, printable(module.render(sections, notes, title=title, width=width, with_runs=with_runs)))
