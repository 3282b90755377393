"""The table of runs on one task that belong to no named sweep: a row for each model and setting."""

from collections.abc import Sequence
from dataclasses import replace

from gyral.reports.catalogue import Row, differing_task_options, name_rows
from gyral.reports.tables.cells import (
    CAPTION,
    NOTHING,
    Table,
    TableCell,
    describe_seeds,
    describe_steps,
    format_mean,
    loss_ratio_cell,
    mark_best_of_column,
    parameters_cell,
    result_cell,
    runs_cell,
)
from gyral.reports.tables.labels import SHARED, common_overrides
from gyral.reports.tables.marks import marked
from gyral.runs.measures import MEASURES, Measure, loss_unit
from gyral.runs.names import describe_option
from gyral.runs.run_record import RunRecord, select

MAX_CONDITIONS = 6  # values of a task's options that are columns; more are rows


def measures_of(records: Sequence[RunRecord]) -> list[Measure]:
    """Return the measures that runs of a task log on the test split, the monitored one first."""
    names = {name for record in records for name in record.results or {}}
    measured = [measure for measure in MEASURES.values() if f"test/{measure.name}" in names]
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
    measured, unit = measures_of(records), loss_unit(names)
    with_loss = unit != MEASURES["mse"].label or not measured  # the loss of a regression is one of its measures
    columns = [(measure.title.replace(" in ", "\nin "), measure.higher_is_better) for measure in measured]
    if with_loss:
        columns.append((f"test loss\n({unit})", False))
    columns.append(("loss /\nbaseline", False))
    has_notes = not _is_uniform(rows)
    body: list[tuple[str, tuple[TableCell, ...]]] = []
    for row in rows:
        cells = [result_cell(row.records, f"test/{m.name}", m.digits, m.scale) for m in measured]
        if with_loss:
            cells.append(result_cell(row.records, "test/loss", 4))
        cells.append(loss_ratio_cell(row.records))
        count = _count(row.records, has_notes)
        if count.missing:  # listed below the first number
            cells[0] = replace(cells[0], text=cells[0].text if cells[0].values else "", missing=count.missing)
        body.append((row.name, (*cells, parameters_cell(row.records), replace(count, missing=()))))
    heads = ("row", *(head for head, _ in columns), "parameters", "seeds")
    complete = [all(record.results for record in row.records) for row in rows]
    for condition in dict.fromkeys(conditions):
        compared = [known and other == condition for known, other in zip(complete, conditions, strict=True)]
        for column, (_, higher_is_better) in enumerate(columns):
            body = mark_best_of_column(body, column, higher_is_better, compared)
    details = (*(head for head, _ in columns[len(measured) :] if measured), "seeds")
    return Table(title, _caption(rows), heads, body, details=details)


def _table_of_conditions(title: str, rows: list[Row], conditions: list[str]) -> Table:
    records = [record for row in rows for record in row.records]
    names = {name for record in records for name in record.results or {}}
    main = next(iter(measures_of(records)), Measure("loss", loss_unit(names), digits=4, higher_is_better=False))
    keys, columns, has_notes = differing_task_options(rows), list(dict.fromkeys(conditions)), not _is_uniform(rows)
    settings: dict[tuple[str, ...], dict[str, Row]] = {}
    for row, condition in zip(rows, conditions, strict=True):
        setting = tuple(override for override in row.setting if override.partition("=")[0] not in keys)
        settings.setdefault(setting, {})[condition] = row
    body: list[tuple[str, tuple[TableCell, ...]]] = []
    labels = name_rows([next(iter(own.values())) for own in settings.values()], without=keys)
    for name, own in zip(labels, settings.values(), strict=True):
        cells = [_measured(own[condition], main, has_notes) if condition in own else NOTHING for condition in columns]
        every = [record for row in own.values() for record in row.records]
        body.append((name, (*cells, parameters_cell(every, as_range=True))))
    for column in range(len(columns)):
        body = mark_best_of_column(body, column, main.higher_is_better)
    heads = ("row", *(f"{main.title.replace(' in ', chr(10) + 'in ')}\n{text}" for text in columns), "parameters")
    return Table(title, _caption(rows), heads, body)


def _measured(row: Row, measure: Measure, has_notes: bool) -> TableCell:
    values = [found for record in row.records if (found := measure.value(record.results)) is not None]
    text = marked(format_mean(values, measure.digits), row.records)
    cell = runs_cell(row.records, text, lambda record: measure.value(record.results))
    return replace(cell.with_statistics(), notes=cell.notes if has_notes else ())


def _count(records: list[RunRecord], has_notes: bool) -> TableCell:
    """Return the cell of the number of seeds that are done, with their steps, and what is missing."""
    done = sum(record.results is not None for record in records)
    text = f"{done}" if done == len(records) else f"{done} of {len(records)}"
    cell = runs_cell(records, text, lambda record: None)
    return replace(cell, notes=cell.notes if has_notes else ())


def _is_uniform(rows: list[Row]) -> bool:
    """Return whether all rows have the same seeds, done or missing, and the same steps."""
    return len({_describe_runs(row.records) for row in rows if any(r.results for r in row.records)}) <= 1


def _describe_runs(records: list[RunRecord]) -> tuple[str, str]:
    done = [record for record in records if record.results]
    return describe_seeds([record.seed for record in records]), describe_steps(done)


def _caption(rows: list[Row]) -> str:
    """Return the caption: what the numbers are, seeds and steps if they are the same for all rows, and overrides."""
    started = [row.records for row in rows if any(record.results for record in row.records)]
    text = CAPTION
    if started and _is_uniform(rows):
        seeds, steps = _describe_runs(started[0])
        text = text.replace("over seeds", f"over {seeds}, {steps} each")
        if len(started[0]) == 1:
            text = f"{seeds}, {steps}{text[text.index(', at ') :]}"
    shared = [override for override in common_overrides(rows) if not override.startswith(("model=", "experiment="))]
    return f"{text}{SHARED}{' '.join(shared)}" if shared else text
