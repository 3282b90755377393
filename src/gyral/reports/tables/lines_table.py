"""The layout "tasks": the average of each row over the lines of a sweep, and the measure on each line."""

from dataclasses import replace
from statistics import fmean

from gyral.reports.catalogue import Row, Sweep, column_of, in_column
from gyral.reports.tables.cells import (
    Table,
    TableCell,
    mark_best,
    mark_best_of_column,
    parameters_cell,
    published_cell,
    standard_deviation,
    value_of,
)
from gyral.reports.tables.labels import caption, common_overrides, own_label
from gyral.runs.measures import MEASURES
from gyral.runs.records import RunRecord

MAJORITY = "majority"
# for each result that reports other data than the row's, the mark of the number and its footnote
MARKS = {
    "stand_ins": ("°", "trained on the 1k file, because the 10k file does not exist"),
    "generated": ("*", "on GENERATED stories, which are not from bAbI"),
}


def averages_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the average of each row over the lines, and the number of lines that it solved."""
    measure = MEASURES[sweep.measure]
    body: list[tuple[str, tuple[TableCell, ...]]] = []
    for row in rows:
        means = [fmean(scores) for line in sweep.lines if (scores := _scores(sweep, row, line))]
        published = row.paper.get(sweep.measure)
        average = TableCell("", missing=("missing",), paper=published)
        if means:
            average = replace(
                average,
                text=f"{fmean(means):.{measure.digits}f}{_marks(row.records)}",
                mean=fmean(means),
                missing=(f"of {len(means)} of {len(sweep.lines)}",) if len(means) < len(sweep.lines) else (),
                runs=tuple((record, value_of(sweep.measure)(record)) for record in row.records),
            )
        solved = TableCell(
            f"{sum(mean >= sweep.solved for mean in means)} of {len(means)}" if means else "–",
            runs=tuple((record, None) for record in row.records),
        )
        cells = (
            average,
            published_cell(published, measure.digits),
            solved,
            parameters_cell(row.records, as_range=True),
        )
        body.append((own_label(row, rows), cells))
    heads = ("row", "average", "paper", f"solved\n(≥ {sweep.solved:g})", "parameters")
    marked = mark_best_of_column(body, 0, measure.higher_is_better)
    return Table(sweep.title, caption(common_overrides(rows)), heads, marked)


def lines_table(sweep: Sweep, rows: list[Row]) -> Table:
    """Return the measure on each line of the rows that have runs, and the score of the most frequent answer."""
    started = [row for row in rows if row.records]
    labels = [own_label(row, rows).replace(", ", "\n").replace(" (", "\n(") for row in started]
    measure = MEASURES[sweep.measure]
    body = []
    for line in sweep.lines:
        majority = "–"
        for record in (record for row in started for record in in_column(sweep, row, line)):
            if record.results and f"test/{MAJORITY}" in record.results:
                majority = f"{measure.scale * record.results[f'test/{MAJORITY}']:.{measure.digits}f}"
        measured = mark_best([_line_cell(sweep, row, line) for row in started], measure.higher_is_better)
        body.append((line, (*measured, TableCell(majority))))
    return Table("", "", (sweep.column_name, *labels, MAJORITY), body)


def _line_cell(sweep: Sweep, row: Row, line: str) -> TableCell:
    """Return the cell of the mean and the standard deviation of a row's runs on a line."""
    digits = MEASURES[sweep.measure].digits
    scores, own = _scores(sweep, row, line), in_column(sweep, row, line)
    pairs = [(record, _score(sweep, record, line)) for record in row.records]
    runs = tuple((record, score) for record, score in pairs if score is not None or record in own)
    mean = f"{fmean(scores):.{digits}f}{_marks(own)}" if scores else ""
    deviation = (f"± {standard_deviation(scores):.{digits}f}",) if len(scores) > 1 else ()
    missing = tuple(record.state for record in own if not record.results)
    return TableCell(mean or ("" if missing else "–"), deviation, missing, runs).with_statistics()


def split_joint_rows(sweep: Sweep, rows: list[Row]) -> list[Row]:
    """Put runs whose value is not a line of the sweep, such as one model for all lines, into rows of their own."""
    split = []
    for row in rows:
        groups: dict[tuple[str, ...], list[RunRecord]] = {} if row.records else {row.setting: []}
        for record in row.records:
            value = column_of(sweep, record)
            own = () if value in sweep.lines else (f"{sweep.column}={value}",)
            groups.setdefault((*row.setting, *own), []).append(record)
        split += [replace(row, setting=setting, records=records) for setting, records in sorted(groups.items())]
    return split


def mark_footnotes(rows: list[Row]) -> list[str]:
    """Return a footnote for each mark that the numbers of some row have."""
    found = "".join(_marks(row.records) for row in rows)
    return [f"{mark} {meaning}" for mark, meaning in MARKS.values() if mark in found]


def _score(sweep: Sweep, record: RunRecord, line: str) -> float | None:
    """Return the measure of a run on a line. A model for all lines logs it under a name that ends in the line's."""
    own = "" if column_of(sweep, record) == line else f"_{sweep.column_name}{line}"
    value = (record.results or {}).get(f"test/{sweep.measure}{own}")
    return None if value is None else MEASURES[sweep.measure].scale * value


def _scores(sweep: Sweep, row: Row, line: str) -> list[float]:
    return [score for record in row.records if (score := _score(sweep, record, line)) is not None]


def _marks(records: list[RunRecord]) -> str:
    """Return the marks of the runs' results."""
    return "".join(
        mark
        for name, (mark, _) in MARKS.items()
        if any((record.results or {}).get(f"test/{name}") for record in records)
    )
