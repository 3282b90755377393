"""The result of an evaluation: a table with notes, and its numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from gyral.core.console import make_console
from gyral.core.errors import OptionError, printable
from gyral.core.escaping import escape_markdown
from gyral.core.files import to_json, write_atomically
from gyral.core.inputs import path_of

NO_VALUE = "–"


class Request(NamedTuple):
    """Arguments of an evaluation beyond a task's metrics, besides the task.

    Attributes:
        title: a description of the model and its checkpoint.
        save: path of the file to write, None for none.
        data_dir: the data folder.
    """

    title: str
    save: str | None
    data_dir: str


@dataclass(frozen=True)
class EvaluationReport:
    """The result of an evaluation.

    Attributes:
        title: what was evaluated on which data.
        heads: heads of the columns.
        rows: the cells of each row as text; an empty row separates groups.
        notes: lines below the table.
        numbers: all numbers by name.
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    numbers: dict[str, float] = field(default_factory=dict)

    def show(self) -> None:
        """Print the table and the notes."""
        table = Table(title=printable(self.title), title_justify="left")
        for place, head in enumerate(self.heads):
            table.add_column(printable(head), justify="right" if place else "left", no_wrap=place > 0)
        for row in self.rows:
            if row:
                table.add_row(*map(printable, row))
            else:
                table.add_section()
        console = make_console()
        console.print(table)
        for note in self.notes:
            console.print(printable(note), soft_wrap=True)

    def markdown(self) -> str:
        """Return the table and the notes in Markdown."""
        heads, *rows = ([*map(escape_markdown, line)] for line in (self.heads, *filter(None, self.rows)))
        lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts = (f"## {escape_markdown(self.title)}", table, *map(escape_markdown, self.notes))
        return printable("\n\n".join(parts)) + "\n"

    def json(self) -> str:
        """Return the title, the numbers and the notes as JSON; a number that is not defined is null."""
        return to_json({"title": self.title, "numbers": self.numbers, "notes": self.notes}, 1) + "\n"

    def write(self, path: Path) -> None:
        """Write a file in Markdown or JSON, as its suffix says."""
        write_atomically(path, self.markdown() if path.suffix == ".md" else self.json())


def output_file(save: str | None, suffixes: Sequence[str] = (".md", ".json")) -> Path | None:
    """Return the path of the file to write, None for none.

    Raises:
        OptionError: its suffix is none of `suffixes`.
    """
    path = None if save is None else path_of(save)
    if path is not None and path.suffix not in suffixes:
        raise OptionError("save", save, f"must end in one of {', '.join(suffixes)}")
    return path


def number(value: float | None, digits: int = 1) -> str:
    """Return a number as text, and a dash for None and NaN."""
    return NO_VALUE if value is None or value != value else f"{value:.{digits}f}"
