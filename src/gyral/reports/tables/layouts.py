"""The layouts of tables: which rows and columns a table has, and the formats of its cells, see `LAYOUTS`.

A column is a head, a function that makes the entry of a row, and what `tables.table.Column` has besides.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from gyral.core.measures import MSE, Measure, loss_measure, loss_unit
from gyral.reports.frame import RATIO, Frame
from gyral.reports.rows import AVERAGE, Row, by_condition, common_overrides, condition_of, task_options
from gyral.reports.statistics import mean_text
from gyral.reports.tables import cells
from gyral.reports.tables.solved import solved_tables
from gyral.reports.tables.table import NOTHING, Column, Columns, Entry, Table, pivot
from gyral.runs.run_record import RunRecord, measures_of, select

MAX_CONDITIONS = 6  # values of a task's options that are columns; more are rows
DIFFERENT = 1.1  # numbers of parameters of two rows, the greater over the smaller


def tables_of(frame: Frame) -> list[Table]:
    """Return the tables of a frame, in the layout of its sweep or that of runs of a task."""
    return LAYOUTS[frame.sweep.layout if frame.sweep else "runs"](frame)


def _paper(frame: Frame) -> list[Table]:
    """Measures and size of each row next to the published values, for each value of the sweep's column."""
    table = pivot(frame.rows, _paper_columns(frame), frame.title).without_empty_rows().with_best()
    table = table.with_rows([(name, _noted_once(entries)) for name, entries in table.rows])
    table = table.with_common_notes(common_overrides(frame.rows))
    empty = (NOTHING,) * (len(table.columns) - 1)
    references = ((name, (entry, *empty)) for name, entry in _references(frame))
    return [table.with_rows([*table.rows, *references])]


def _paper_columns(frame: Frame) -> Columns:
    sweep: Any = frame.sweep
    names = {measure.name for measure in frame.measures} | {"parameters"}
    is_published = any(names & set(paper) for paper in sweep.papers.values())
    for measure, column in product(frame.measures, frame.columns):
        head = sweep.head(column) if sweep.column else measure.label if sweep.also else "measured"
        yield head, partial(cells.measured, frame, measure=measure, column=column), measure.higher_is_better
        if is_published:
            yield "paper", partial(_published, measure=measure, column=column)

    def sizes(row: Row) -> Entry:
        runs = [record for column in frame.columns for record in frame.in_column(row, column)]
        return cells.parameters(runs, row.published("parameters"))

    yield "parameters", sizes
    if is_published:
        yield "paper", lambda row: _thousands(row.published("parameters"), row.mark)


def _published(row: Row, measure: Measure, column: str) -> Entry:
    return cells.published(row.published(measure.name, column), measure.digits, row.mark)


def _noted_once(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a row: the seeds and steps of the same runs are noted at their first number alone."""
    noted: list[list[str]] = []
    result = []
    for entry in entries:
        runs = [record.place for record, _ in entry.runs]
        result.append(replace(entry, notes=(), missing=(), is_partial=False) if entry.text and runs in noted else entry)
        noted += [runs] if entry.text else []
    return result


def _thousands(count: float | None, mark: str) -> Entry:
    """Return a published number of parameters as papers print it: 14k, 7.2M."""
    if count is None:
        return NOTHING
    return Entry(f"{count / 1000:.6g}k{mark}" if count < 1e6 else f"{count / 1e6:.7g}M{mark}")


def _references(frame: Frame) -> Iterator[tuple[str, Entry]]:
    """Yield the name and the score of each n-gram model of the sweep, from the first run that has logged it."""
    sweep: Any = frame.sweep
    for order in sweep.ngrams:
        name = sweep.ngram_result(order)
        runs = [(record, sweep.main.scale * record.metrics[name]) for row in frame.rows for record in row.records
                if name in record.metrics]  # fmt: skip
        if runs:
            yield f"{order}-gram (Witten–Bell)", cells.mean([*runs[:1]], sweep.main.digits)


def reference_footnotes(frame: Frame) -> list[str]:
    """Return a line about the n-gram models of the sweep that no finished run has logged."""
    sweep: Any = frame.sweep
    results = [record.results for row in frame.rows for record in row.records if record.results]
    absent = [o for o in sweep.ngrams if not any(sweep.ngram_result(o) in found for found in results)]
    if not absent or not results or sweep.layout != "table":
        return []
    orders = ",".join(map(str, absent))
    return [f"No run has scores of n-gram models; to log them, train a row with task.ngrams=[{orders}]."]


def _curves(frame: Frame) -> list[Table]:
    """Results of each row next to the finding of the paper."""
    measure: Any = frame.main
    unit = f" in {measure.unit}" if measure.unit else ""
    columns: list[tuple[Any, ...]] = [
        ("test loss\n(nats)", partial(_plain, frame, "test/loss"), False),
        ("loss /\nbaseline", partial(_plain, frame, RATIO), False),
        (f"{measure.label} on\ntest{unit}", partial(cells.measured, frame, measure=measure), measure.higher_is_better),
        ("finding of the paper", _finding, None, True, True),
    ]
    sizes = [size for row in frame.rows for record in row.records if (size := record.metrics.get("parameters"))]
    if sizes and max(sizes) > DIFFERENT * min(sizes):
        columns.insert(3, ("parameters", lambda row: cells.parameters(row.records, as_range=True), None, True))
    table = pivot(frame.rows, columns, frame.title).without_empty_rows().with_best()
    return [table.with_common_notes(common_overrides(frame.rows))]


def _plain(frame: Frame, metric: str, row: Row) -> Entry:
    return cells.without_deviation(cells.mean(frame.of(row.records, metric), 4))


def _finding(row: Row) -> Entry:
    return Entry(f"{row.paper['finding']}{row.mark}") if "finding" in row.paper else NOTHING


def _lines(frame: Frame) -> list[Table]:
    """The average of each row over the lines of a sweep and the lines that it solves, then its measure on each line."""
    sweep: Any = frame.sweep
    digits, metric = sweep.main.digits, f"test/{sweep.measure}"
    scores = {id(row): [frame.with_value(row.records, metric, line) for line in sweep.lines] for row in frame.rows}

    def means(row: Row) -> list[float]:
        return [fmean(value for _, value in own) for own in scores[id(row)] if own]

    def paper(row: Row) -> float | None:  # it may be given beside values of some lines
        published = row.paper.get(sweep.measure)
        return published.get(AVERAGE, fmean(published.values())) if published else None

    def of_all(count: int) -> tuple[str, ...]:
        return (f"of {count} of {len(sweep.lines)}",) if count < len(sweep.lines) else ()

    def average(row: Row) -> Entry:
        """The deviation is that of the average over seeds, if several seeds have all lines."""
        found = means(row)
        if not found:
            return replace(NOTHING, paper=paper(row))
        by_seed = [[[v for r, v in own if r.seed == seed] for own in scores[id(row)]] for seed in _seeds(row)]
        averages = [fmean(map(fmean, lines)) for lines in by_seed if all(lines)]
        deviation = mean_text(averages, digits).partition(" ")[2] if len(averages) > 1 else ""
        text = f"{fmean(found):.{digits}f}{cells.marks_of(row.records)}"
        runs = [(record, sweep.main.value(record.results)) for record in row.records]
        return Entry(" ".join(filter(None, (text, deviation))), (), of_all(len(found)), runs, paper(row), fmean(found))

    def best(row: Row) -> Entry:
        """The average of the seeds that are the best of their line on the validation split."""
        found = [value for own in scores[id(row)] if (value := _best_value(own)) is not None]
        return Entry(f"{fmean(found):.{digits}f}", (), of_all(len(found)), mean=fmean(found)) if found else NOTHING

    def solved(row: Row) -> Entry:
        found = means(row)
        published = [value for line in sweep.lines if (value := row.published(sweep.measure, line)) is not None]
        notes = (f"paper {sum(value >= sweep.solved for value in published)}",) if len(published) > 1 else ()
        text = f"{sum(value >= sweep.solved for value in found)} of {len(found)}" if found else "–"
        return Entry(text, notes, runs=[(record, None) for record in row.records])

    def seeds(row: Row) -> Entry:
        """A seed that lacks some of the row's lines is shown as "3 (7 of 20)"."""
        lines = [own for own in scores[id(row)] if own]
        counts = {seed: sum(any(r.seed == seed for r, _ in own) for own in lines) for seed in _seeds(row)}
        texts = (seed if n == len(lines) else f"{seed} ({n} of {len(lines)})" for seed, n in counts.items())
        return Entry(", ".join(texts) or "–")

    columns: list[tuple[Any, ...]] = [
        ("average", average, sweep.main.higher_is_better),
        *([("best\nseeds", best)] if sweep.best_seed else []),
        ("paper", lambda row: cells.published(paper(row), digits, row.mark)),
        (f"solved\n(≥ {sweep.solved:g})", solved),
        ("seeds", seeds, None, True),
        ("parameters", lambda row: cells.parameters(row.records, as_range=True)),
    ]
    averages = pivot(frame.rows, columns, frame.title).without_empty_rows().with_best()
    return [averages.captioned(common_overrides(frame.rows)), _table_of_lines(frame, metric)]


def _table_of_lines(frame: Frame, metric: str) -> Table:
    """Return the measure on each line of the rows that have runs, and of predictors that ignore the inputs."""
    sweep: Any = frame.sweep
    started = [row for row in frame.rows if row.records]
    known = measures_of(record for row in started for record in row.records).values()
    found = {line.metric for line in frame.lines}
    floors = [one for one in known if one.floor_of == sweep.measure and f"test/{one.name}" in found]

    def cell(line: str, row: Row | Measure) -> Entry:
        if isinstance(row, Measure):  # its score is the same for all runs on a line
            runs = [value for own in started for _, value in frame.of(own.records, f"test/{row.name}", line)]
            values = [value for value in runs if value is not None]
            return Entry(f"{values[-1]:.{row.digits}f}" if values else "–")
        best = _best_value(frame.with_value(row.records, metric, line)) if sweep.best_seed else None
        return cells.stacked(
            frame.of(row.records, metric, line), sweep.main, row.published(sweep.measure, line), best, row.mark
        )

    names = [row.label.replace(", ", "\n").replace(" (", "\n(") for row in started] + [floor.name for floor in floors]
    columns = ((line, partial(cell, line), sweep.main.higher_is_better) for line in sweep.lines)
    return pivot([*started, *floors], columns, names=names, head=sweep.column_name).with_best().transposed()


def _best_value(runs: Sequence[tuple[RunRecord, float]]) -> float | None:
    """Return the value of the run that has the best monitored metric; the first of equal ones."""
    if not runs:
        return None
    sign = -1 if select(runs[0][0].config, "task.mode") == "min" else 1
    return max(runs, key=lambda pair: sign * pair[0].metrics.get("monitor", -sign * math.inf))[1]


def _seeds(row: Row) -> list[str]:
    return sorted({record.seed for record in row.records}, key=lambda seed: (len(seed), seed))


def _groups(frame: Frame) -> list[Table]:
    """A line for each group and a column for each row of the sweep that has runs, or for all rows if none has.

    A second table has published values of models that the sweep does not train, if there are any.
    """
    sweep: Any = frame.sweep
    measure, metric = sweep.main, f"test/{sweep.measure}"
    trained = [row for row in frame.rows if sweep.trains(row.experiment)]
    shown = [row for row in trained if row.records] or trained
    groups = frame.groups(metric)
    unit = next((group.partition(" ")[2] for group in groups), "groups")
    numbers = {int(group.partition(" ")[0]) for group in groups}

    def cell(line: str, row: Row) -> Entry:
        paper = row.published(sweep.measure, line)
        return cells.stacked(frame.of(row.records, metric, line), measure, paper, mark=row.mark)

    numbers.update(*(row.published_groups(measure.name) for row in shown))
    lines = ["", *(f"{number} {unit}" for number in sorted(numbers))]
    columns: list[tuple[Any, ...]] = [
        *((line.partition(" ")[0] or "all", partial(cell, line), measure.higher_is_better) for line in lines),
        ("parameters", lambda row: cells.parameters(row.records)),
    ]
    names = [row.label.replace(", ", "\n") for row in shown]
    table = pivot(shown, columns, frame.title, names, head=unit).with_best().transposed()
    tables = [table.captioned(common_overrides(frame.rows))]
    if others := [row for row in frame.rows if not sweep.trains(row.experiment)]:
        heads = sorted({number for row in others for number in row.published_groups(measure.name)})
        columns = [(str(n), partial(_of_group, measure=measure, number=n)) for n in heads]
        names = [row.name for row in others]
        tables.append(pivot(others, columns, names=names, head=f"published, by {unit}"))
    return tables


def _of_group(row: Row, measure: Measure, number: int) -> Entry:
    return cells.published(row.published_groups(measure.name).get(number), measure.digits, row.mark)


def _runs(frame: Frame) -> list[Table]:
    """A row for each model and setting of runs of a task.

    Runs with other values of the task's options, such as `task.delay`, are not comparable: each value has a column with
    the main measure. If there is only one, the columns are all measures.
    """
    rows = frame.rows
    keys = task_options(rows)
    conditions = [condition_of(row, keys) for row in rows]
    if 1 < len({*conditions}) <= MAX_CONDITIONS:
        main = frame.main or loss_measure(line.metric for line in frame.lines)
        own = by_condition(rows)

        def cell(condition: str, runs: dict[str, list[RunRecord]]) -> Entry:
            found = runs.get(condition)
            return cells.noted(frame.of(found, f"test/{main.name}"), main) if found else NOTHING

        heads = dict.fromkeys(condition for runs in own.values() for condition in runs)
        columns: list[tuple[Any, ...]] = [
            *((f"{_broken(main.title)}\n{each}", partial(cell, each), main.higher_is_better) for each in heads),
            ("parameters", lambda runs: cells.parameters([r for o in runs.values() for r in o], as_range=True)),
        ]
        table = pivot([*own.values()], columns, frame.title, [*own]).with_best()
    else:
        table = pivot(rows, _run_columns(frame), frame.title)
        counts = [cells.seeds(row.records) for row in rows]
        first = [  # the missing seeds are listed below the first number
            replace(entry, text=entry.text if entry.values else "", missing=count.missing) if count.missing else entry
            for entry, count in zip(table.columns[0].entries, counts, strict=True)
        ]
        shown = Column("seeds", [replace(count, missing=()) for count in counts], is_detail=True)
        table = replace(table, columns=[replace(table.columns[0], entries=first), *table.columns[1:], shown])
        table = table.with_best([c if not n.missing else None for c, n in zip(conditions, counts, strict=True)])
    shared = [override for override in common_overrides(rows) if not override.startswith(("model=", "experiment="))]
    return [table.with_common_notes(shared)]


def _run_columns(frame: Frame) -> Columns:
    has_measure = bool(frame.measures)
    for measure in frame.measures:
        cell = lambda row, m=measure: cells.mean(frame.of(row.records, f"test/{m.name}"), m.digits)  # noqa: E731
        yield _broken(measure.title), cell, measure.higher_is_better
    units = [unit for row in frame.rows if (unit := _unit(row))]
    for unit in dict.fromkeys(units) or [
        loss_unit(())
    ]:  # runs of a task may be of a classification and of a regression
        if unit != MSE.label or not has_measure:  # the loss of a regression is one of its measures
            yield f"test loss\n({unit})", partial(_loss, frame, unit), False, has_measure
    yield "loss /\nbaseline", partial(_plain, frame, RATIO), False, has_measure
    yield "parameters", lambda row: cells.parameters(row.records)


def _loss(frame: Frame, unit: str, row: Row) -> Entry:
    return cells.mean(frame.of(row.records, "test/loss"), 4) if _unit(row) in (unit, "") else NOTHING


def _unit(row: Row) -> str:
    """Return the unit of the losses of a row, "" if no run is DONE."""
    names = {name for record in row.records for name in record.metrics}
    return loss_unit(names) if names else ""


def _broken(title: str) -> str:
    """Return a measure with its unit on a second line."""
    return title.replace(" in ", "\nin ")


LAYOUTS: dict[str, Callable[[Frame], list[Table]]] = {
    "table": _paper,
    "curves": _curves,
    "tasks": _lines,
    "groups": _groups,
    "solved": solved_tables,
    "runs": _runs,
}
