"""The numbers of runs in tidy form: one for each run, row, column and metric. Imports no torch."""

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from gyral.core.measures import loss_unit
from gyral.reports.catalogue import Sweep
from gyral.reports.rows import GROUP, Row
from gyral.runs.run_record import RunRecord

RATIO = "test/loss_ratio"  # of test loss and memoryless baseline
GROUPED = re.compile(r"(\w+?)_(\d+)_([a-z]+)")  # the measure of a group, the number and the unit
Runs = list[tuple[RunRecord, float | None]]  # the runs behind an entry, each with its own value


@dataclass(frozen=True, slots=True)
class Number:
    """One number of one run.

    Attributes:
        run: the run.
        row: the row that it belongs to.
        column: the value of the sweep's column, such as "30", or the group of test examples, such as "7 operators"; ""
            if a report has neither.
        metric: its name in the results of runs, such as test/accuracy; "" for a run that is not DONE.
        value: the number as tables print it, such as an accuracy in %.
        published: the published value.
        unit: the unit of both, such as "%" or "nats"; "" if they have none.
    """

    run: RunRecord
    row: Row
    column: str
    metric: str
    value: float | None
    published: float | None
    unit: str = ""


class Numbers:
    """The numbers of the rows of a report, which tables and plots find by row, column and metric.

    Args:
        rows: the rows.
        sweep: the sweep, None for runs that belong to none.
    """

    def __init__(self, rows: Sequence[Row], sweep: Sweep | None = None) -> None:
        self.sweep = sweep
        self.tidy = [number for row in rows for run in row.runs for number in _numbers_of(row, run, sweep)]
        self._values = {(number.run.place, number.column, number.metric): number.value for number in self.tidy}

    def of(self, records: Sequence[RunRecord], metric: str, column: str = "") -> Runs:
        """Return the runs that belong to a column, each with its number or None."""
        runs = []
        for record in records:
            value = self._values.get((record.place, column, metric))
            if value is not None or (self.sweep.column_of(record) if self.sweep else "") in ("", column):
                runs.append((record, value))
        return runs

    def groups(self, metric: str) -> list[str]:
        """Return the groups of test examples in which a run has a metric, such as "7 operators", by their number."""
        found = {number.column for number in self.tidy if number.metric == metric and GROUP.fullmatch(number.column)}
        return sorted(found, key=lambda group: int(group.partition(" ")[0]))


def _numbers_of(row: Row, run: RunRecord, sweep: Sweep | None) -> Iterator[Number]:
    own = sweep.column_of(run) if sweep else ""
    if not run.metrics:
        yield Number(run, row, own, "", None, None)
    measures = [*(sweep.measures.values() if sweep else ()), *run.measures]
    scales = {measure.name: measure.scale for measure in measures}
    units = dict.fromkeys(("loss", "baseline"), loss_unit(run.metrics)) | {m.name: m.unit for m in measures}
    of_tables = {measure.name for measure in measures if not measure.at_end}
    for full_name, value in run.metrics.items():
        split, slash, name = full_name.rpartition("/")
        measure, column = _place(name, own, of_tables, sweep)
        published = row.published(measure, column) if split in ("test", "") else None
        printed = scales.get(measure, 1) * value
        yield Number(run, row, column, f"{split}{slash}{measure}", printed, published, units.get(measure, ""))
    loss, baseline = run.metrics.get("test/loss"), run.metrics.get("test/baseline")
    if loss is not None and baseline is not None:  # a transcribed record may lack one
        yield Number(run, row, own, RATIO, loss / baseline, None)


def _place(name: str, column: str, measures: Container[str], sweep: Sweep | None) -> tuple[str, str]:
    """Return the measure and the column of a result.

    A model for all lines of a sweep logs accuracy_qa3 for line 3, and a task with groups of test examples
    accuracy_7_operators.
    """
    if sweep and sweep.layout == "tasks" and column not in sweep.lines:
        measure, separator, line = name.rpartition(f"_{sweep.column_name}")
        return (measure, line) if separator and line in sweep.lines else (name, column)
    group = None if column or name in measures else GROUPED.fullmatch(name)
    return (group[1], f"{group[2]} {group[3]}") if group and group[1] in measures else (name, column)
