"""The frame of a report: the numbers of runs, one a line, and the rows that they belong to. Imports no torch.

Tables, plots, `gyral.list_runs` and the pages of results read it. A line is a named tuple, not a row of pandas, which
`list_runs` alone makes: its import takes 0.3 s and 100 MB, and a report of one run has a hundred lines.
"""

import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gyral.config.groups import generated_choices, warn_skipped
from gyral.core.errors import UserError, printable
from gyral.core.extras import import_extra
from gyral.core.measures import Measure, logged, loss_unit, measure_of
from gyral.reports.catalogue import Plan, Sweep, containing, load
from gyral.reports.measures import with_measures
from gyral.reports.rows import GROUP, Row, rows_of, rows_of_tasks
from gyral.runs.records import read
from gyral.runs.run_record import RunRecord, measures_of, select

if TYPE_CHECKING:
    import pandas

RATIO = "test/loss_ratio"  # of test loss and memoryless baseline
GROUPED = re.compile(r"(\w+?)_(\d+)_([a-z]+)")  # the measure of a group, the number and the unit
UNKNOWN = Measure("", "")  # of a metric that is printed as it is logged
Runs = list[tuple[RunRecord, float | None]]  # runs, each with its own value


COLUMNS = ("run", "task", "cell", "row", "column", "seed", "state", "metric", "value", "unit", "published")


class Line(NamedTuple):
    """One number of one run.

    Attributes:
        run: the run; its seed, state, steps and remarks are those of the number.
        row: the row, which has the source and the mark of its published values and the runs with other budgets.
        column: the value of the sweep's column, such as "30", or the group of test examples, such as "7 operators"; ""
            if a report has neither.
        metric: its name in the results of runs, such as test/accuracy; "" for a run that is not DONE.
        value: the number as tables print it, such as an accuracy in %.
        unit: the unit, such as "%" or "nats"; "" if there is none.
        published: the published value.
    """

    run: RunRecord
    row: Row
    column: str = ""
    metric: str = ""
    value: float | None = None
    unit: str = ""
    published: float | None = None


@dataclass
class Frame:
    """The numbers of one sweep, or of the runs of one task that belong to no sweep.

    Attributes:
        title: the title of its report.
        rows: the rows with their runs.
        sweep: the sweep, None for runs that belong to none.
    """

    title: str
    rows: list[Row]
    sweep: Sweep | None = None

    @cached_property
    def lines(self) -> list[Line]:
        """All numbers, and a line without one for each run that is not DONE."""
        return [line for row in self.rows for run in row.runs for line in _lines_of(row, run, self.sweep)]

    @cached_property
    def _values(self) -> dict[tuple[str, str, str], float | None]:
        return {(line.run.place, line.column, line.metric): line.value for line in self.lines}

    @property
    def records(self) -> list[RunRecord]:
        """All runs, of all budgets, and those that no number has."""
        return [record for row in self.rows for record in row.runs]

    @cached_property
    def measures(self) -> list[Measure]:
        """The measures of its tables, the main one first; none for a loss."""
        if self.sweep:
            return [self.sweep.measures[name] for name in (self.sweep.measure, *self.sweep.also)]
        records = [record for row in self.rows for record in row.records]
        found = logged(measures_of(records).values(), {name for record in records for name in record.metrics})
        monitored = {str(select(record.config, "task.monitor")).rpartition("/")[2] for record in records}
        return sorted(found, key=lambda measure: measure.name not in monitored)

    @property
    def main(self) -> Measure | None:
        """The main measure, None for a loss."""
        return next(iter(self.measures), None)

    @property
    def measure(self) -> str:
        """The name of the main measure, or "loss"."""
        return self.main.name if self.main else "loss"

    @cached_property
    def columns(self) -> list[str]:
        """The values of the sweep's column, then other values of runs; [""] if there is a single column."""
        expected = self.sweep.axes[self.sweep.column] if self.sweep and self.sweep.column else [""]
        found = {self.column_of(record) for row in self.rows for record in row.records}
        return [*expected, *sorted(found - {*expected})]

    def column_of(self, record: RunRecord) -> str:
        """Return the column that a run belongs to, "" if there is a single one."""
        return self.sweep.column_of(record) if self.sweep else ""

    def in_column(self, row: Row, column: str) -> list[RunRecord]:
        """Return the runs of a row that belong to a column."""
        return [record for record in row.records if self.column_of(record) == column]

    def of(self, records: Iterable[RunRecord], metric: str, column: str = "") -> Runs:
        """Return those of some runs that belong to a column, each with its number or None."""
        runs = []
        for record in records:
            value = self._values.get((record.place, column, metric))
            if value is not None or self.column_of(record) in ("", column):
                runs.append((record, value))
        return runs

    def with_value(self, records: Iterable[RunRecord], metric: str, column: str) -> list[tuple[RunRecord, float]]:
        """Return those of some runs that have a number, see `of`."""
        return [(record, value) for record, value in self.of(records, metric, column) if value is not None]

    def groups(self, metric: str) -> list[str]:
        """Return the groups of test examples in which a run has a metric, such as "7 operators", by their number."""
        found = {line.column for line in self.lines if line.metric == metric and GROUP.fullmatch(line.column)}
        return sorted(found, key=lambda group: int(group.partition(" ")[0]))


def read_frames(
    records: Sequence[RunRecord],
    plan: Plan | None = None,
    only: str | None = None,
    missing: bool = True,
    narrowed: bool = False,
) -> Iterator[Frame]:
    """Yield the frame of each sweep of a table that has some of the runs, then that of each task of the others.

    Args:
        records: the runs.
        plan: the plan of their directory. None: no measure of a table is looked up, which imports the task where no run
            has logged it.
        only: the name of a table whose frame is the only one, even without runs.
        missing: whether frames have rows and columns without runs.
        narrowed: whether they have no rows without runs in any case, but for those that the plan names.

    Raises:
        OptionError: there is no table `only`, or its task has no measure that it names.
    """
    left = [*records]
    for sweep in [load(only)] if only else containing(record.experiment for record in records):
        mine = list(filter(sweep.has, records))
        if not mine and not only:
            continue
        try:
            sweep = sweep if plan is None else with_measures(sweep, mine)
        except UserError as error:
            if only:
                raise
            warn_skipped(f"{generated_choices('sweep')[sweep.name]}: {error}")
            continue
        left = [record for record in left if not sweep.has(record)]
        planned = plan.rows if plan else None
        if narrowed or planned is not None:
            sweep = sweep.with_rows({str(record.experiment) for record in mine}.union(planned or ()))
        shown = sweep if missing else sweep.without_missing(mine)
        yield Frame(shown.title, rows_of(shown, mine), shown)
    if not only:
        for task, rows in rows_of_tasks(left, plan or Plan()).items():
            yield Frame(f"Runs on {task}", rows)


def _lines_of(row: Row, run: RunRecord, sweep: Sweep | None) -> list[Line]:
    own = sweep.column_of(run) if sweep else ""
    metrics = run.metrics
    if not metrics:
        return [Line(run, row, own)]
    known = {measure.name: measure for measure in (*(sweep.measures.values() if sweep else ()), *run.measures)}
    loss = Measure("loss", "loss", loss_unit(metrics), at_end=True)
    known = {"loss": loss, "baseline": loss} | known
    lines = []
    for full_name, value in metrics.items():
        split, slash, name = full_name.rpartition("/")
        name, column = _place(name, own, known, sweep)
        measure = known.get(name) or measure_of(name, known.values()) or UNKNOWN
        published = row.published(name, column) if name in row.paper and split in ("test", "") else None
        lines.append(Line(run, row, column, f"{split}{slash}{name}", measure.scale * value, measure.unit, published))
    # a transcribed record may lack one, and the baseline of constant targets is 0
    if "test/loss" in metrics and metrics.get("test/baseline", 0) > 0:
        lines.append(Line(run, row, own, RATIO, metrics["test/loss"] / metrics["test/baseline"]))
    return lines


def _place(name: str, column: str, known: dict[str, Measure], sweep: Sweep | None) -> tuple[str, str]:
    """Return the measure and the column of a result.

    A model for all lines of a sweep logs accuracy_qa3 for line 3, and a task with groups of test examples
    accuracy_7_operators.
    """
    if sweep and sweep.layout == "tasks" and column not in sweep.lines:
        measure, separator, line = name.rpartition(f"_{sweep.column_name}")
        return (measure, line) if separator and line in sweep.lines else (name, column)
    if column or (name in known and not known[name].at_end):
        return name, column
    group = GROUPED.fullmatch(name)
    if group and group[1] in known and not known[group[1]].at_end:
        return group[1], f"{group[2]} {group[3]}"
    return name, column


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
    return pandas_frame(records, options)


def pandas_frame(records: Sequence[RunRecord], options: Sequence[str] = ()) -> "pandas.DataFrame":
    """Return the numbers of runs that were read, see `list_runs`."""
    pandas = import_extra("pandas", "gyral.list_runs", "frames")  # now: see above

    found = []
    for line in (line for frame in read_frames(records) for line in frame.lines):
        run, given = line.run, line.run.options if options else {}
        row = ", ".join(line.row.label.split("\n"))
        own = (run.place, run.task, run.cell, row, line.column, run.config["seed"], run.state, line.metric or None)
        found.append((*own, line.value, line.unit, line.published, *(given.get(key) for key in options)))
    frame = pandas.DataFrame(found, columns=[*COLUMNS, *options])
    return frame.astype({"value": float, "published": float})
