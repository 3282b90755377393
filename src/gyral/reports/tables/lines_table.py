"""The layout "tasks": the average of each row over the lines of a sweep, and the measure on each line."""

import math
from dataclasses import replace
from statistics import fmean

from gyral.core.measures import Measure
from gyral.reports.catalogue import Row, Sweep, column_of, in_column
from gyral.reports.tables.entries import (
    NOTHING,
    Entry,
    Table,
    TableRow,
    mark_best,
    mark_best_of_column,
    parameters_entry,
    published_entry,
    stacked_entry,
    standard_deviation,
    value_of,
    without_empty_rows,
)
from gyral.reports.tables.labels import caption, common_overrides, label
from gyral.reports.tables.marks import marks_of
from gyral.runs.run_record import RunRecord, measures_of, select

AVERAGE = "average"  # the published average, among the published values of lines


def averages_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the average of each row over the lines, and the number of lines that it solved.

    If the sweep has `best_seed`, the table also has the average of the seeds that are the best of their line on the
    validation split.
    """
    measure = sweep.main
    body: list[TableRow] = []
    for row in rows:
        means = [fmean(scores) for line in sweep.lines if (scores := _scores(sweep, row, line))]
        published, lines = _published_average(sweep, row), _published_lines(sweep, row)
        average = replace(NOTHING, paper=published)
        if means:
            average = replace(
                average,
                text=f"{fmean(means):.{measure.digits}f}{marks_of(row.records)}{_deviation(sweep, row)}",
                mean=fmean(means),
                missing=(f"of {len(means)} of {len(sweep.lines)}",) if len(means) < len(sweep.lines) else (),
                runs=tuple((record, value_of(sweep.main)(record)) for record in row.records),
            )
        solved = Entry(
            f"{sum(mean >= sweep.solved for mean in means)} of {len(means)}" if means else "–",
            notes=(f"paper {sum(value >= sweep.solved for value in lines.values())}",) if len(lines) > 1 else (),
            runs=tuple((record, None) for record in row.records),
        )
        entries = (
            average,
            *([_best_average(sweep, row)] if sweep.best_seed else []),
            published_entry(published, measure.digits),
            solved,
            Entry(_list_seeds(sweep, row)),
            parameters_entry(row.records, as_range=True),
        )
        body.append((label(row, rows), entries))
    best = ("best\nseeds",) if sweep.best_seed else ()
    heads = ("row", "average", *best, "paper", f"solved\n(≥ {sweep.solved:g})", "seeds", "parameters")
    marked = mark_best_of_column(without_empty_rows(body), 0, measure.higher_is_better)
    return Table(sweep.title, caption(common_overrides(rows)), heads, marked, details=("seeds",))


def _list_seeds(sweep: Sweep, row: Row) -> str:
    """Return the seeds of a row. One that lacks some of the row's lines is shown as "3 (7 of 20)"."""
    lines = [line for line in sweep.lines if _scores(sweep, row, line)]
    seeds = []
    for seed in sorted({record.seed for record in row.records}, key=lambda seed: (len(seed), seed)):
        own = replace(row, records=[record for record in row.records if record.seed == seed])
        done = sum(bool(_scores(sweep, own, line)) for line in lines)
        seeds.append(seed if done == len(lines) else f"{seed} ({done} of {len(lines)})")
    return ", ".join(seeds) or "–"


def lines_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the measure on each line of the rows that have runs, and of predictors that ignore the inputs."""
    started = [row for row in rows if row.records]
    labels = [label(row, rows).replace(", ", "\n").replace(" (", "\n(") for row in started]
    measure = sweep.main
    records = [record for row in started for record in row.records]
    logged = {name for record in records for name in record.metrics}
    known = measures_of(records).values()
    floors = [one for one in known if one.floor_of == measure.name and f"test/{one.name}" in logged]
    body: list[TableRow] = []
    for line in sweep.lines:
        own = [record for row in started for record in in_column(sweep, row, line)]
        measured = mark_best([_line_entry(sweep, row, line) for row in started], measure.higher_is_better)
        body.append((line, (*measured, *(_floor_entry(floor, own) for floor in floors))))
    return Table("", "", (sweep.column_name, *labels, *(floor.name for floor in floors)), body)


def _floor_entry(floor: Measure, records: list[RunRecord]) -> Entry:
    """Return the entry of the score of a predictor that ignores the inputs, which all runs on a line share."""
    values = [value for record in records if (value := floor.value(record.results)) is not None]
    return Entry(f"{values[-1]:.{floor.digits}f}" if values else "–")


def _line_entry(sweep: Sweep, row: Row, line: str) -> Entry:
    """Return the entry of the mean and the standard deviation of a row's runs on a line, beside the published value."""
    own = in_column(sweep, row, line)
    pairs = [(record, _score(sweep, record, line)) for record in row.records]
    runs = [(record, score) for record, score in pairs if score is not None or record in own]
    missing = [record.state for record in own if not record.results]
    published, best = _published_lines(sweep, row).get(line), _best_score(sweep, row, line) if sweep.best_seed else None
    return stacked_entry(runs, sweep.main.digits, marks_of(own), missing, published, best)


def _published_lines(sweep: Sweep, row: Row) -> dict[str, float]:
    """Return the published value of each line of a row that the paper has."""
    published = row.paper.get(sweep.measure)
    return {line: published[line] for line in sweep.lines if line in published} if isinstance(published, dict) else {}


def _published_average(sweep: Sweep, row: Row) -> float | None:
    """Return the published average, which may be given beside values of some lines; else that of the lines."""
    published = row.paper.get(sweep.measure)
    return published.get(AVERAGE, fmean(published.values())) if isinstance(published, dict) else published


def _deviation(sweep: Sweep, row: Row) -> str:
    """Return the standard deviation over seeds of the average as text, empty unless several seeds have all lines."""
    by_seed = {record.seed: [r for r in row.records if r.seed == record.seed] for record in row.records}
    averages = []
    for records in by_seed.values():
        scores = [_scores(sweep, replace(row, records=records), line) for line in sweep.lines]
        if all(scores):
            averages.append(fmean(fmean(own) for own in scores))
    return f" ± {standard_deviation(averages):.{sweep.main.digits}f}" if len(averages) > 1 else ""


def _best_average(sweep: Sweep, row: Row) -> Entry:
    """Return the entry of the average over lines of the seeds that are the best on the validation split."""
    scores = [score for line in sweep.lines if (score := _best_score(sweep, row, line)) is not None]
    if not scores:
        return Entry("–")
    missing = (f"of {len(scores)} of {len(sweep.lines)}",) if len(scores) < len(sweep.lines) else ()
    return Entry(f"{fmean(scores):.{sweep.main.digits}f}", missing=missing, mean=fmean(scores))


def _best_score(sweep: Sweep, row: Row, line: str) -> float | None:
    """Return the measure of the run on a line that has the best monitored metric; the first of equal ones."""
    scored = [(record, score) for record in row.records if (score := _score(sweep, record, line)) is not None]
    if not scored:
        return None
    sign = -1 if select(scored[0][0].config, "task.mode") == "min" else 1
    return max(scored, key=lambda pair: sign * (pair[0].results or {}).get("monitor", -sign * math.inf))[1]


def split_joint_rows(sweep: Sweep, rows: list[Row]) -> list[Row]:
    """Put runs whose value is not a line of the sweep, such as one model for all lines, into separate rows."""
    split = []
    for row in rows:
        groups: dict[tuple[str, ...], list[RunRecord]] = {} if row.records else {row.setting: []}
        for record in row.records:
            value = column_of(sweep, record)
            own = () if value in sweep.lines else (f"{sweep.column}={value}",)
            groups.setdefault((*row.setting, *own), []).append(record)
        split += [replace(row, setting=setting, records=records) for setting, records in sorted(groups.items())]
    return split


def _score(sweep: Sweep, record: RunRecord, line: str) -> float | None:
    """Return the measure of a run on a line. A model for all lines logs it under a name that ends in the line's."""
    own = "" if column_of(sweep, record) == line else f"_{sweep.column_name}{line}"
    value = (record.results or {}).get(f"test/{sweep.measure}{own}")
    return None if value is None else sweep.main.scale * value


def _scores(sweep: Sweep, row: Row, line: str) -> list[float]:
    return [score for record in row.records if (score := _score(sweep, record, line)) is not None]
