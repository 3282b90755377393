"""The panels and rows of a plot of several runs, with readable names. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gyral.config.tables import COLUMN
from gyral.plotting.style import cell_styles, without_formulas
from gyral.reports.catalogue import Sweep
from gyral.reports.rows import Row, by_condition, columns_of, in_column
from gyral.reports.tables.sections import Section
from gyral.runs.directory import BUDGET
from gyral.runs.names import describe_option
from gyral.runs.run_record import RunRecord

HIDDEN = (BUDGET,)  # settings that the x axis shows


@dataclass(frozen=True)
class Series:
    """Runs that differ only in their seed: a line or a bar of a panel.

    Attributes:
        label: the name of the row.
        records: its runs.
        published: the published values of the panel by measure, with the number of parameters.
    """

    label: str
    records: list[RunRecord]
    published: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """Runs that one pair of axes shows.

    Attributes:
        title: what distinguishes it from the other panels; empty if there is a single one.
        series: its rows.
    """

    title: str
    series: list[Series]

    @property
    def records(self) -> list[RunRecord]:
        return [record for series in self.series for record in series.records]


def row_looks(panels: Sequence[Panel]) -> dict[str, dict[str, Any]]:
    """Return the color, dashes and marker of each row of the panels, by its label: those of its cell."""
    cells = {series.label: series.records[0].cell for panel in panels for series in panel.series}
    return dict(zip(cells, cell_styles([*cells.values()]), strict=True))


def make_panels(sections: Sequence[Section]) -> list[Panel]:
    """Return the panels of a report: one for each sweep or task, and each value of its column or of its task options.

    Rows without runs are left out, and so are panels without runs.
    """
    panels = []
    for section in sections:
        own = _panels_of_sweep(section.sweep, section.rows) if section.sweep else _panels_of_task(section.rows)
        if len(sections) > 1:
            name = section.title if section.sweep else section.records[0].task
            own = [Panel(f"{name}, {panel.title}" if panel.title else name, panel.series) for panel in own]
        panels += own
    return [_literal(panel) for panel in panels if panel.records]


def _literal(panel: Panel) -> Panel:
    series = [replace(series, label=without_formulas(series.label)) for series in panel.series]
    return Panel(without_formulas(panel.title), series)


def _panels_of_sweep(sweep: Sweep, rows: list[Row]) -> list[Panel]:
    columns = columns_of(sweep, rows)
    panels = []
    for column in columns:
        series = [
            Series(_label(row), records, {} if sweep.layout == "tasks" else _published(row, column))
            for row in rows
            if (records := in_column(sweep, row, column))
        ]
        title = sweep.head(column) if sweep.column == COLUMN else describe_option(sweep.column_name, column)
        panels.append(Panel(title if len(columns) > 1 else "", series))
    return panels


def _panels_of_task(rows: list[Row]) -> list[Panel]:
    """Return the panels of runs that belong to no sweep: task options that differ make panels, other options rows."""
    found = by_condition(rows, without=HIDDEN)
    conditions = dict.fromkeys(condition for runs in found.values() for condition in runs)
    return [Panel(c, [Series(name, runs[c]) for name, runs in found.items() if c in runs]) for c in conditions]


def _label(row: Row) -> str:
    """Return the name of a row with its own settings, such as "RUM, learning rate = 0.01"."""
    name, *overrides = row.label.split("\n")
    words = (override.lstrip("+~").partition("=") for override in overrides)
    return ", ".join((name, *(describe_option(key, value) for key, _, value in words if key not in HIDDEN)))


def _published(row: Row, column: str) -> dict[str, float]:
    """Return the published values of a row in a column by measure."""
    values = {name: row.published(name, column) for name in row.paper}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}
