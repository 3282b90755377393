"""The numbers of runs as a pandas frame, for Python and notebooks. Imports no torch."""

import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from gyral.core.errors import UserError, printable
from gyral.reports.catalogue import Plan, containing
from gyral.reports.numbers import Numbers
from gyral.reports.rows import rows_of, rows_of_tasks
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord

if TYPE_CHECKING:
    import pandas

COLUMNS = ("run", "task", "cell", "row", "column", "seed", "state", "metric", "value", "unit", "published")


def list_runs(directory: str | PathLike[str] = "outputs", options: Sequence[str] = ()) -> "pandas.DataFrame":
    """Return the numbers of the runs below a directory, one a line, as reports show them. Imports no torch.

    The columns are

    * `run`: the run directory or the record file, for `gyral.load` or `pandas.read_csv(f"{run}/metrics.csv")`;
    * `task`, `cell`, such as "GRU", `seed`, and `state`, such as "DONE";
    * `row`, the model with the options in which the runs differ, and `column`, such as a value of the table's column;
    * `metric`, such as "test/accuracy", its `value` as tables print it, such as an accuracy in %, the `unit`, such as
      "%", "nats" or "", and the value that is `published` for the row.

    A run that is not DONE has one line without a number. A run that cannot be read is left out with a warning.

    Args:
        directory: where to search, at any depth.
        options: keys of options that are further columns, such as "optimizer.lr".

    Raises:
        UserError: there is no such directory.
    """
    folder = Path(directory).expanduser()
    if not folder.is_dir():
        raise UserError(f"{directory}: no such directory")
    records, notes = read(folder)
    for note in notes:
        warnings.warn(printable(note), stacklevel=2)
    return frame_of(records, options)


def frame_of(records: Sequence[RunRecord], options: Sequence[str] = ()) -> "pandas.DataFrame":
    """Return the numbers of runs that were read, see `list_runs`."""
    import pandas  # now: it takes a third of a second and 100 MB, which reports do without

    found = [Numbers(rows_of(sweep, records), sweep) for sweep in containing(run.experiment for run in records)]
    in_tables = {number.run.place for numbers in found for number in numbers.tidy}
    left = [record for record in records if record.place not in in_tables]
    found += [Numbers(rows) for rows in rows_of_tasks(left, Plan()).values()]
    lines = []
    for number in (number for numbers in found for number in numbers.tidy):
        run, row = number.run, ", ".join(number.row.label.split("\n"))
        own = (run.place, run.task, run.cell, row, number.column, run.config["seed"], run.state)
        given = run.options if options else {}
        values = (
            number.metric or None,
            number.value,
            number.unit,
            number.published,
            *(given.get(key) for key in options),
        )
        lines.append((*own, *values))
    frame = pandas.DataFrame(lines, columns=[*COLUMNS, *options])
    return frame.astype({"value": float, "published": float})
