"""The table of runs on one task that belong to no named sweep: a row for each model and setting."""

from collections.abc import Sequence
from dataclasses import replace

from gyral.core.measures import MSE, Measure, logged, loss_measure, loss_unit
from gyral.reports.numbers import RATIO, Numbers
from gyral.reports.rows import Row, by_condition, common_overrides, condition_of, task_options
from gyral.reports.tables.entries import mean_entry, noted_entry, parameters_entry, with_notes
from gyral.reports.tables.table import NOTHING, Column, Entry, Table
from gyral.runs.run_record import RunRecord, measures_of, select

MAX_CONDITIONS = 6  # values of a task's options that are columns; more are rows


def logged_measures(records: Sequence[RunRecord]) -> list[Measure]:
    """Return the measures that runs of a task log on the test split, the monitored one first."""
    names = {name for record in records for name in record.metrics}
    measured = logged(measures_of(records).values(), names)
    monitored = {str(select(record.config, "task.monitor")).rpartition("/")[2] for record in records}
    return sorted(measured, key=lambda measure: measure.name not in monitored)


def task_table(title: str, rows: list[Row], numbers: Numbers) -> Table:
    """Return the table of the runs on a task.

    Runs with other values of the task's options, such as `task.delay`, are not comparable: each value has a column with
    the main measure. If there is only one, the columns are all measures.
    """
    keys = task_options(rows)
    conditions = [condition_of(row, keys) for row in rows]
    if 1 < len(set(conditions)) <= MAX_CONDITIONS:
        table = _table_of_conditions(title, rows, numbers)
    else:
        table = _table_of_measures(title, rows, numbers, conditions)
    shared = [override for override in common_overrides(rows) if not override.startswith(("model=", "experiment="))]
    return table.with_common_notes(shared)


def _table_of_measures(title: str, rows: list[Row], numbers: Numbers, conditions: list[str]) -> Table:
    records = [record for row in rows for record in row.records]
    measured = logged_measures(records)
    logged = [{name for record in row.records for name in record.metrics} for row in rows]
    units = [loss_unit(names) if names else "" for names in logged]
    columns = []
    for measure in measured:
        entries = [mean_entry(numbers.of(row.records, f"test/{measure.name}"), measure.digits) for row in rows]
        columns.append(Column(_broken(measure.title), entries, measure.higher_is_better))
    for unit in dict.fromkeys(filter(None, units)) or [
        loss_unit(())
    ]:  # runs of a task may be of a classification and of a regression
        if unit == MSE.label and measured:  # the loss of a regression is one of its measures
            continue
        losses = [
            mean_entry(numbers.of(row.records, "test/loss"), 4) if own in (unit, "") else NOTHING
            for row, own in zip(rows, units, strict=True)
        ]
        columns.append(Column(f"test loss\n({unit})", losses, False, is_detail=bool(measured)))
    ratios = [mean_entry(numbers.of(row.records, RATIO), 4, with_deviation=False) for row in rows]
    columns.append(Column("loss /\nbaseline", ratios, False, is_detail=bool(measured)))
    counts = [_count(row.records) for row in rows]
    first = [  # the missing seeds are listed below the first number
        replace(entry, text=entry.text if entry.values else "", missing=count.missing) if count.missing else entry
        for entry, count in zip(columns[0].entries, counts, strict=True)
    ]
    columns[0] = replace(columns[0], entries=first)
    columns += [
        Column("parameters", [parameters_entry(row.records) for row in rows]),
        Column("seeds", [replace(count, missing=()) for count in counts], is_detail=True),
    ]
    complete = [all(record.results for record in row.records) for row in rows]
    compared = [condition if known else None for condition, known in zip(conditions, complete, strict=True)]
    return Table(title, [row.label for row in rows], columns).with_best(compared)


def _table_of_conditions(title: str, rows: list[Row], numbers: Numbers) -> Table:
    records = [record for row in rows for record in row.records]
    main = next(iter(logged_measures(records)), loss_measure(number.metric for number in numbers.tidy))
    own = by_condition(rows)
    columns = []
    for condition in dict.fromkeys(condition for runs in own.values() for condition in runs):
        entries = [
            noted_entry(numbers.of(runs[condition], f"test/{main.name}"), main) if condition in runs else NOTHING
            for runs in own.values()
        ]
        columns.append(Column(f"{_broken(main.title)}\n{condition}", entries, main.higher_is_better))
    every = [[record for runs in found.values() for record in runs] for found in own.values()]
    columns.append(Column("parameters", [parameters_entry(runs, as_range=True) for runs in every]))
    return Table(title, list(own), columns).with_best()


def _broken(title: str) -> str:
    """Return a measure with its unit on a second line."""
    return title.replace(" in ", "\nin ")


def _count(records: list[RunRecord]) -> Entry:
    """Return the entry of the number of finished seeds, with their steps and the missing seeds."""
    done = sum(record.results is not None for record in records)
    text = f"{done}" if done == len(records) else f"{done} of {len(records)}"
    return with_notes(Entry(text, runs=tuple((record, None) for record in records)), records)
