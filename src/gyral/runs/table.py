"""Tables of runs for Python and notebooks. Imports no torch."""

import io
import os
from collections.abc import Sequence
from html import escape
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, overload

from rich import box
from rich.console import Console
from rich.table import Table

from gyral.config.roles import settings_of
from gyral.core.errors import UserError
from gyral.core.measures import logged, loss_unit
from gyral.runs.names import row_names
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord, measures_of

SHOWN = 100  # rows of a table that is displayed
LONGEST_NAME = 60  # characters of a name that is displayed


def list_runs(directory: str | PathLike[str] = "outputs") -> "RunTable":
    """Return the runs below a directory, finished or not, in the order of their paths. Needs no torch.

    Runs that cannot be read are left out; `RunTable.notes` has the reasons.

    Args:
        directory: where to search, at any depth.

    Raises:
        UserError: there is no such directory.
    """
    path = Path(directory)
    if not path.is_dir():
        raise UserError(f"{path}: no such directory")
    return RunTable(*read(path), path)


class RunTable(Sequence[RunRecord]):
    """A sequence of runs. A notebook shows it as a table, and `print` as text.

    Args:
        records: the runs.
        notes: a line for each run that is unreadable or incomplete.
        directory: the directory to which displayed paths are relative.
    """

    def __init__(self, records: Sequence[RunRecord], notes: Sequence[str] = (), directory: Path = Path()) -> None:
        self.records = list(records)
        self.notes = list(notes)
        self.directory = directory

    def __len__(self) -> int:
        return len(self.records)

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...

    @overload
    def __getitem__(self, index: slice) -> "RunTable": ...

    def __getitem__(self, index: int | slice) -> "RunRecord | RunTable":
        if isinstance(index, slice):
            return RunTable(self.records[index], directory=self.directory)
        return self.records[index]

    @property
    def names(self) -> list[str]:
        """The readable names of the runs, such as "RUM λ = 1": the model and the options in which the runs differ."""
        # the experiment distinguishes rows of a sweep: its file may set options that the overrides do not show
        own = [{"experiment": run.experiment or "", **settings_of(run.overrides)} for run in self.records]
        keys = [(run.cell, *sorted(words.values())) for run, words in zip(self.records, own, strict=True)]
        rows = {key: (run.config, words) for key, run, words in zip(keys, self.records, own, strict=True)}
        names = dict(zip(rows, row_names(list(rows.values())), strict=True))
        return [names[key] for key in keys]

    def rows(self) -> list[dict[str, Any]]:
        """Return a dictionary for each run: name, task, state, steps, directory, then all options and final metrics.

        Options have their keys on the command line, such as `model.cell.hidden_size`, metrics their names, such as
        `test/accuracy`. Data frames of all libraries can be made of these rows.
        """
        return [
            {
                "name": name,
                "task": run.task,
                "state": run.state,
                "steps": run.steps,
                "directory": run.place,
                **run.options,
                **{metric: value for metric, value in run.metrics.items() if metric != "steps"},
            }
            for name, run in zip(self.names, self.records, strict=True)
        ]

    def to_pandas(self) -> Any:
        """Return the rows as a `pandas.DataFrame`; options and metrics that a run does not have are NaN.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise UserError("to_pandas: needs the package pandas: pip install pandas") from None
        return pandas.DataFrame(self.rows())

    def __repr__(self) -> str:
        columns, lines = self._cells()
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for index, column in enumerate(columns):
            table.add_column(column, justify="left" if index in (0, 1, len(columns) - 1) else "right", no_wrap=True)
        for line in lines:
            table.add_row(*line)
        console = Console(file=io.StringIO(), width=10_000, color_system=None, force_jupyter=False)
        if lines:
            console.print(table)
        assert isinstance(console.file, io.StringIO)
        text = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
        return "\n".join(filter(None, (text, *self._footer())))

    def _repr_html_(self) -> str:
        columns, lines = self._cells()
        head = "".join(f"<th>{escape(column)}</th>" for column in columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if lines else ""
        return table + "".join(f"<p>{escape(line)}</p>" for line in self._footer())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the names and the texts of the displayed columns."""
        found = {name for run in self.records for name in run.metrics}
        measures = logged(measures_of(self).values(), found)
        unit = loss_unit(found)
        columns = ["run", "task", "seed", "state", f"test loss ({unit})", *(f"test {m.title}" for m in measures)]
        lines = []
        for name, run in zip(self.names[:SHOWN], self.records, strict=False):
            values = [run.metrics.get("test/loss"), *(measure.value(run.metrics) for measure in measures)]
            digits = [4, *(measure.digits for measure in measures)]
            texts = ["" if v is None else f"{v:.{d}f}" for v, d in zip(values, digits, strict=True)]
            place = os.path.relpath(run.place, self.directory) if self.directory.is_dir() else run.place
            shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
            lines.append([shown, run.task, run.seed, run.state, *texts, place])
        return [*columns, "directory"], lines

    def _footer(self) -> list[str]:
        count = f"{len(self)} run{'' if len(self) == 1 else 's'} in {self.directory}"
        more = f"; the first {SHOWN} are shown" if len(self) > SHOWN else ""
        return [count + more, *self.notes]
