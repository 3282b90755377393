"""The panels and rows of a plot of several runs, with readable names. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gyral.config.roles import settings_of
from gyral.plotting.style import without_formulas
from gyral.reports.catalogue import Row, Sweep, columns_of, in_column
from gyral.reports.tables.labels import common_overrides
from gyral.reports.tables.sections import Section
from gyral.runs.names import describe_option, row_names
from gyral.runs.run_record import RunRecord

HIDDEN = ("trainer.max_steps",)  # settings that the x axis shows


@dataclass(frozen=True)
class Series:
    """Runs that differ only in their seed: a line or a bar of a panel.

    Attributes:
        label: the name of the row.
        records: its runs.
        parameters: the published number of parameters.
        published: the published values of the panel, by measure.
    """

    label: str
    records: list[RunRecord]
    parameters: float | None = None
    published: tuple[tuple[str, float], ...] = ()


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


def make_panels(sections: Sequence[Section]) -> list[Panel]:
    """Return the panels of a report: one for each sweep or task, and each value of its column or of its task options.

    Rows without runs are left out, and so are panels without runs.
    """
    panels = []
    for section in sections:
        own = _panels_of_sweep(section.sweep, section.rows) if section.sweep else _panels_of_task(section.records)
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
    shared = common_overrides(rows)
    panels = []
    for column in columns:
        series = []
        for row in rows:
            if records := in_column(sweep, row, column):
                own = [item for item in row.setting if item not in shared and item.split("=")[0] not in HIDDEN]
                label = ", ".join((row.name, *(_describe(item) for item in own)))
                published = () if sweep.layout == "tasks" else _published(row, column)  # they are averages over tasks
                series.append(Series(label, records, row.paper.get("parameters"), published))
        title = describe_option(sweep.column_name, column) if len(columns) > 1 else ""
        panels.append(Panel(title, series))
    return panels


def _published(row: Row, column: str) -> tuple[tuple[str, float], ...]:
    """Return the published values of a row in a column, by measure."""
    values = {name: value.get(column) if isinstance(value, dict) else value for name, value in row.paper.items()}
    return tuple(
        (name, float(value))
        for name, value in values.items()
        if name != "parameters" and isinstance(value, int | float)
    )


def _panels_of_task(records: list[RunRecord]) -> list[Panel]:
    """Return the panels of runs that belong to no sweep: task options that differ make panels, other options rows."""
    task_keys = sorted({key for record in records for key in record.overrides if key.startswith("task.")})
    split = [key for key in task_keys if len({record.overrides.get(key) for record in records}) > 1]
    rows: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in records:
        settings = settings_of(_without(record.overrides, (*HIDDEN, *split)))
        given = (item for _, item in sorted(settings.items()))
        rows.setdefault((record.overrides.get("experiment", ""), *given), []).append(record)
    shown = [(mine[0].config, _without(mine[0].overrides, (*HIDDEN, *split))) for mine in rows.values()]
    named = list(zip(row_names(shown), rows.values(), strict=True))
    panels: dict[tuple[str | None, ...], list[Series]] = {}
    for record in records:
        panels.setdefault(tuple(record.overrides.get(key) for key in split), [])
    for values, series in panels.items():
        for label, mine in named:
            if own := [record for record in mine if tuple(record.overrides.get(key) for key in split) == values]:
                series.append(Series(label, own))
    ordered = sorted(panels, key=lambda values: [_sort_key(value) for value in values])
    return [Panel(", ".join(_describe(item) for item in values if item), panels[values]) for values in ordered]


def _without(overrides: dict[str, str], keys: Sequence[str]) -> dict[str, str]:
    return {key: item for key, item in overrides.items() if key not in keys}


def _describe(override: str) -> str:
    key, _, value = override.lstrip("+~").partition("=")
    return describe_option(key, value)


def _sort_key(override: str | None) -> tuple[bool, float, str]:
    """Sort numbers by size and other values by name; a default, which has no override, comes first."""
    text = (override or "").partition("=")[2]
    try:
        return override is not None, float(text), ""
    except ValueError:
        return override is not None, 0, text
