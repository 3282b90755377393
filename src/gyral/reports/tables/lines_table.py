"""The layouts "tasks" and "groups": the measure of each row on lines (tasks of bAbI) or in groups of examples.

A line of the table is a line of the sweep or a group; its columns are the rows of the sweep.
"""

import math
from dataclasses import replace
from statistics import fmean

from gyral.core.measures import Measure
from gyral.reports.catalogue import Sweep
from gyral.reports.numbers import Numbers, Runs
from gyral.reports.rows import AVERAGE, Row, common_overrides
from gyral.reports.tables.entries import (
    marks_of,
    parameters_entry,
    published_entry,
    stacked_entry,
    standard_deviation,
)
from gyral.reports.tables.table import NOTHING, Column, Entry, Table
from gyral.runs.run_record import RunRecord, measures_of, select


def averages_table(sweep: Sweep, rows: list[Row], numbers: Numbers) -> Table:
    """Return the average of each row over the lines, and the number of lines that it solved.

    If the sweep has `best_seed`, the table also has the average of the seeds that are the best of their line on the
    validation split.
    """
    measure = sweep.main
    scores = [{line: _done(numbers, sweep, row.records, line) for line in sweep.lines} for row in rows]
    published = [_published_average(sweep, row) for row in rows]
    averages = [_average(sweep, row, own, paper) for row, own, paper in zip(rows, scores, published, strict=True)]
    columns = [Column("average", averages, measure.higher_is_better)]
    if sweep.best_seed:
        columns.append(Column("best\nseeds", [_best_average(sweep, own) for own in scores]))
    columns += [
        Column(
            "paper",
            [published_entry(value, measure.digits, row.mark) for row, value in zip(rows, published, strict=True)],
        ),
        Column(f"solved\n(≥ {sweep.solved:g})", [_solved(sweep, *pair) for pair in zip(rows, scores, strict=True)]),
        Column("seeds", [Entry(_list_seeds(*pair)) for pair in zip(rows, scores, strict=True)], is_detail=True),
        Column("parameters", [parameters_entry(row.records, as_range=True) for row in rows]),
    ]
    table = Table(sweep.title, [row.label for row in rows], columns)
    return table.without_empty_rows().with_best().captioned(common_overrides(rows))


Scores = dict[str, list[tuple[RunRecord, float]]]  # for each line, the runs that have a value, with their values


def _done(numbers: Numbers, sweep: Sweep, records: list[RunRecord], line: str) -> list[tuple[RunRecord, float]]:
    found = numbers.of(records, f"test/{sweep.measure}", line)
    return [(record, value) for record, value in found if value is not None]


def _average(sweep: Sweep, row: Row, scores: Scores, published: float | None) -> Entry:
    """Return the entry of the average over lines of the mean over runs.

    It has the standard deviation over seeds of the average, if several seeds have all lines.
    """
    means = _means(scores)
    if not means:
        return replace(NOTHING, paper=published)
    by_seed = [
        [[value for record, value in own if record.seed == seed] for own in scores.values()] for seed in _seeds(row)
    ]
    averages = [fmean(map(fmean, lines)) for lines in by_seed if all(lines)]
    digits = sweep.main.digits
    deviation = f" ± {standard_deviation(averages):.{digits}f}" if len(averages) > 1 else ""
    return Entry(
        f"{fmean(means):.{digits}f}{marks_of(row.records)}{deviation}",
        missing=(f"of {len(means)} of {len(scores)}",) if len(means) < len(scores) else (),
        runs=tuple((record, sweep.main.value(record.results)) for record in row.records),
        paper=published,
        mean=fmean(means),
    )


def _means(scores: Scores) -> list[float]:
    """Return the mean over runs on each line that has any."""
    return [fmean(value for _, value in own) for own in scores.values() if own]


def _best_average(sweep: Sweep, scores: Scores) -> Entry:
    """Return the entry of the average over lines of the seeds that are the best on the validation split."""
    best = [value for own in scores.values() if (value := _best_value(own)) is not None]
    if not best:
        return NOTHING
    missing = (f"of {len(best)} of {len(scores)}",) if len(best) < len(scores) else ()
    return Entry(f"{fmean(best):.{sweep.main.digits}f}", missing=missing, mean=fmean(best))


def _best_value(runs: list[tuple[RunRecord, float]]) -> float | None:
    """Return the value of the run that has the best monitored metric; the first of equal ones."""
    if not runs:
        return None
    sign = -1 if select(runs[0][0].config, "task.mode") == "min" else 1
    return max(runs, key=lambda pair: sign * pair[0].metrics.get("monitor", -sign * math.inf))[1]


def _solved(sweep: Sweep, row: Row, scores: Scores) -> Entry:
    """Return the entry of the number of lines on which the mean reaches `Sweep.solved`, and that of the paper."""
    means, published = _means(scores), _published_lines(sweep, row)
    return Entry(
        f"{sum(mean >= sweep.solved for mean in means)} of {len(means)}" if means else "–",
        notes=(f"paper {sum(value >= sweep.solved for value in published)}",) if len(published) > 1 else (),
        runs=tuple((record, None) for record in row.records),
    )


def _seeds(row: Row) -> list[str]:
    return sorted({record.seed for record in row.records}, key=lambda seed: (len(seed), seed))


def _list_seeds(row: Row, scores: Scores) -> str:
    """Return the seeds of a row. One that lacks some of the row's lines is shown as "3 (7 of 20)"."""
    lines = [own for own in scores.values() if own]
    counts = {seed: sum(any(record.seed == seed for record, _ in own) for own in lines) for seed in _seeds(row)}
    seeds = (seed if count == len(lines) else f"{seed} ({count} of {len(lines)})" for seed, count in counts.items())
    return ", ".join(seeds) or "–"


def _published_lines(sweep: Sweep, row: Row) -> list[float]:
    """Return the published values of a row on lines."""
    return [value for line in sweep.lines if (value := row.published(sweep.measure, line)) is not None]


def _published_average(sweep: Sweep, row: Row) -> float | None:
    """Return the published average, which may be given beside values of some lines; else that of the lines."""
    published = row.paper.get(sweep.measure)
    return published.get(AVERAGE, fmean(published.values())) if published else None


def lines_table(sweep: Sweep, rows: list[Row], numbers: Numbers) -> Table:
    """Return the measure on each line of the rows that have runs, and of predictors that ignore the inputs."""
    started = [row for row in rows if row.records]
    measure = sweep.main
    known = measures_of(record for row in started for record in row.records).values()
    found = {number.metric for number in numbers.tidy}
    floors = [one for one in known if one.floor_of == measure.name and f"test/{one.name}" in found]
    columns = []
    for line in sweep.lines:
        entries = [_line_entry(sweep, row, numbers, line) for row in started]
        entries += [_floor_entry(floor, started, numbers, line) for floor in floors]
        columns.append(Column(line, entries, measure.higher_is_better))
    names = [row.label.replace(", ", "\n").replace(" (", "\n(") for row in started]
    table = Table("", [*names, *(floor.name for floor in floors)], columns, sweep.column_name)
    return table.with_best().transposed()


def _line_entry(sweep: Sweep, row: Row, numbers: Numbers, line: str) -> Entry:
    """Return the entry of the mean and the standard deviation of a row's runs on a line, beside the published value."""
    best = _best_value(_done(numbers, sweep, row.records, line)) if sweep.best_seed else None
    published = row.published(sweep.measure, line)
    return stacked_entry(numbers.of(row.records, f"test/{sweep.measure}", line), sweep.main, published, best, row.mark)


def _floor_entry(floor: Measure, rows: list[Row], numbers: Numbers, line: str) -> Entry:
    """Return the entry of the score of a predictor that ignores the inputs, which all runs on a line share."""
    runs: Runs = [pair for row in rows for pair in numbers.of(row.records, f"test/{floor.name}", line)]
    values = [value for _, value in runs if value is not None]
    return Entry(f"{values[-1]:.{floor.digits}f}" if values else "–")


def groups_tables(sweep: Sweep, rows: list[Row], numbers: Numbers) -> list[Table]:
    """Return a table with a line for each group and a column for each row of the sweep that has runs, or for all
    rows if none has.

    A second table has published values of models that the sweep does not train, if there are any.
    """
    trained = [row for row in rows if sweep.trains(row.experiment)]
    shown = [row for row in trained if row.records] or trained
    measure, metric = sweep.main, f"test/{sweep.measure}"
    groups = numbers.groups(metric)
    unit = next((group.partition(" ")[2] for group in groups), "groups")
    published = [published_groups(row, sweep.measure) for row in shown]
    measured = {int(group.partition(" ")[0]) for group in groups}
    lines = sorted(measured.union(*published))
    columns = []
    for line in ("", *(f"{number} {unit}" for number in lines)):
        entries = [
            stacked_entry(
                numbers.of(row.records, metric, line), measure, row.published(sweep.measure, line), mark=row.mark
            )
            for row in shown
        ]
        columns.append(Column(line.partition(" ")[0] or "all", entries, measure.higher_is_better))
    columns.append(Column("parameters", [parameters_entry(row.records) for row in shown]))
    names = [row.label.replace(", ", "\n") for row in shown]
    tables = [Table(sweep.title, names, columns, unit).with_best().transposed().captioned(common_overrides(rows))]
    if references := [row for row in rows if not sweep.trains(row.experiment)]:
        tables.append(_published_table(references, measure, unit))
    return tables


def published_groups(row: Row, measure: str) -> dict[int, float]:
    """Return the published values of a row by the number of the group."""
    values = row.paper.get(measure)
    return {int(number): float(value) for number, value in values.items()} if isinstance(values, dict) else {}


def _published_table(rows: list[Row], measure: Measure, unit: str) -> Table:
    """Return the published values of rows that the sweep does not train."""
    published = [(published_groups(row, measure.name), row.mark) for row in rows]
    numbers = sorted({number for values, _ in published for number in values})
    columns = [
        Column(str(number), [published_entry(values.get(number), measure.digits, mark) for values, mark in published])
        for number in numbers
    ]
    return Table("", [row.name for row in rows], columns, f"published, by {unit}")
