"""The table of runs on one task that belong to no named sweep: a row for each model and setting."""

from collections.abc import Sequence
from dataclasses import replace

from gyral.core.measures import MSE, Measure, logged, loss_measure, loss_unit
from gyral.reports.catalogue import Row, differing_task_options, name_rows
from gyral.reports.tables.entries import (
    NOTHING,
    Entry,
    Table,
    TableRow,
    loss_ratio,
    mark_best_of_column,
    mean_entry,
    move_common_notes,
    parameters_entry,
    result_of,
    with_notes,
)
from gyral.reports.tables.labels import caption, common_overrides
from gyral.reports.tables.paper_table import noted_entry
from gyral.runs.names import describe_option
from gyral.runs.run_record import RunRecord, measures_of, select

MAX_CONDITIONS = 6  # values of a task's options that are columns; more are rows


def logged_measures(records: Sequence[RunRecord]) -> list[Measure]:
    """Return the measures that runs of a task log on the test split, the monitored one first."""
    names = {name for record in records for name in record.results or {}}
    measured = logged(measures_of(records).values(), names)
    monitored = {str(select(record.config, "task.monitor")).rpartition("/")[2] for record in records}
    return sorted(measured, key=lambda measure: measure.name not in monitored)


def task_table(title: str, rows: list[Row]) -> Table:
    """Return the table of the runs on a task.

    Runs with other values of the task's options, such as `task.delay`, are not comparable: each value has a column with
    the main measure. If there is only one, the columns are all measures.
    """
    conditions = [describe_condition(row, differing_task_options(rows)) for row in rows]
    if 1 < len(set(conditions)) <= MAX_CONDITIONS:
        return _table_of_conditions(title, rows, conditions)
    return _table_of_measures(title, rows, conditions)


def describe_condition(row: Row, keys: Sequence[str]) -> str:
    """Return the values of options of the task in a row as text, such as "delay = 10"."""
    return ", ".join(describe_option(key, select(row.records[0].config, key)) for key in keys)


def _table_of_measures(title: str, rows: list[Row], conditions: list[str]) -> Table:
    records = [record for row in rows for record in row.records]
    names = {name for record in records for name in record.results or {}}
    measured, unit = logged_measures(records), loss_unit(names)
    with_loss = unit != MSE.label or not measured  # the loss of a regression is one of its measures
    columns = [(measure.title.replace(" in ", "\nin "), measure.higher_is_better) for measure in measured]
    if with_loss:
        columns.append((f"test loss\n({unit})", False))
    columns.append(("loss /\nbaseline", False))
    body: list[TableRow] = []
    for row in rows:
        entries = [mean_entry(row.records, result_of(f"test/{m.name}", m.scale), m.digits) for m in measured]
        if with_loss:
            entries.append(mean_entry(row.records, result_of("test/loss"), 4))
        entries.append(mean_entry(row.records, loss_ratio, 4, with_deviation=False))
        count = _count(row.records)
        if count.missing:  # listed below the first number
            entries[0] = replace(entries[0], text=entries[0].text if entries[0].values else "", missing=count.missing)
        body.append((row.name, (*entries, parameters_entry(row.records), replace(count, missing=()))))
    heads = ("row", *(head for head, _ in columns), "parameters", "seeds")
    complete = [all(record.results for record in row.records) for row in rows]
    for condition in dict.fromkeys(conditions):
        compared = [known and other == condition for known, other in zip(complete, conditions, strict=True)]
        for column, (_, higher_is_better) in enumerate(columns):
            body = mark_best_of_column(body, column, higher_is_better, compared)
    details = (*(head for head, _ in columns[len(measured) :] if measured), "seeds")
    body, runs = move_common_notes(body)
    return Table(title, caption(_shared_overrides(rows), runs), heads, body, details=details)


def _table_of_conditions(title: str, rows: list[Row], conditions: list[str]) -> Table:
    records = [record for row in rows for record in row.records]
    names = {name for record in records for name in record.results or {}}
    main = next(iter(logged_measures(records)), loss_measure(names))
    keys, columns = differing_task_options(rows), list(dict.fromkeys(conditions))
    settings: dict[tuple[str, ...], dict[str, Row]] = {}
    for row, condition in zip(rows, conditions, strict=True):
        setting = tuple(override for override in row.setting if override.partition("=")[0] not in keys)
        settings.setdefault(setting, {})[condition] = row
    body: list[TableRow] = []
    labels = name_rows([next(iter(own.values())) for own in settings.values()], without=keys)
    for name, own in zip(labels, settings.values(), strict=True):
        entries = [noted_entry(own[condition].records, main) if condition in own else NOTHING for condition in columns]
        every = [record for row in own.values() for record in row.records]
        body.append((name, (*entries, parameters_entry(every, as_range=True))))
    for column in range(len(columns)):
        body = mark_best_of_column(body, column, main.higher_is_better)
    heads = ("row", *(f"{main.title.replace(' in ', chr(10) + 'in ')}\n{text}" for text in columns), "parameters")
    body, runs = move_common_notes(body)
    return Table(title, caption(_shared_overrides(rows), runs), heads, body)


def _count(records: list[RunRecord]) -> Entry:
    """Return the entry of the number of finished seeds, with their steps and the missing seeds."""
    done = sum(record.results is not None for record in records)
    text = f"{done}" if done == len(records) else f"{done} of {len(records)}"
    return with_notes(Entry(text, runs=tuple((record, None) for record in records)), records)


def _shared_overrides(rows: list[Row]) -> list[str]:
    """Return the overrides of all rows, without those that choose the model or the experiment."""
    return [override for override in common_overrides(rows) if not override.startswith(("model=", "experiment="))]
