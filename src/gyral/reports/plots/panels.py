"""The panels of a plot of several runs, and what all kinds of plots draw of them. Imports no torch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gyral.config.tables import COLUMN
from gyral.core.errors import OptionError
from gyral.core.measures import BITS, MSE, Measure, loss_unit
from gyral.plotting.layout import finish, label_outer, make_grid, set_limits, shared
from gyral.plotting.style import BASELINE, GUESS, add_legend, cell_styles, without_formulas
from gyral.reports.frame import Frame
from gyral.reports.plots.options import Options
from gyral.reports.rows import Row, by_condition
from gyral.runs.directory import BUDGET
from gyral.runs.names import describe_option
from gyral.runs.run_record import RunRecord, measures_of

HIDDEN = (BUDGET,)  # settings that the x axis shows
SPLITS = {"train": "training", "val": "validation", "test": "test"}
MEMORYLESS = "memoryless baseline"
UNKNOWN = Measure("", "")
THIN = 0.7  # points, the width of lines of single runs
Points = tuple[np.ndarray, np.ndarray]  # places and values that axes have to contain


class Line(NamedTuple):
    """Numbers of one run or seed.

    Attributes:
        x: (n,) places on the x axis; none for a number that is the same everywhere.
        y: (n,) values, as printed.
        steps: (n,) numbers of optimizer steps, of a curve.
        failed: whether the run failed.
    """

    x: np.ndarray
    y: np.ndarray
    steps: np.ndarray | None = None
    failed: bool = False


@dataclass(frozen=True)
class Series:
    """A row of a panel: runs that differ only in their seed; or published values, or the score of a simple predictor.

    Attributes:
        label: its name.
        look: color, dashes, marker, and its kind, `gid`: "row", "published", "baseline" or "guess".
        records: its runs.
        published: the published values of the panel by measure, with the number of parameters.
        lines: its numbers.
        note: the failed and unfinished runs of the row; empty if all runs are finished.
    """

    label: str
    look: dict[str, Any] = field(default_factory=dict)
    records: list[RunRecord] = field(default_factory=list)
    published: dict[str, float] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    note: str = ""

    @property
    def is_row(self) -> bool:
        return self.look.get("gid") == "row"


@dataclass(frozen=True)
class Panel:
    """The content of one pair of axes.

    Attributes:
        title: what distinguishes it from the other panels; empty if there is a single one.
        series: its rows.
        metric: the metric, such as test/accuracy.
        measure: the measure of the metric.
        x: the label of the x axis.
        reach: places that the x axis contains, besides those of the series.
    """

    title: str
    series: list[Series]
    metric: str = ""
    measure: Measure = UNKNOWN
    x: str = ""
    reach: Sequence[float] = ()

    @property
    def records(self) -> list[RunRecord]:
        return [record for series in self.series for record in series.records]

    @property
    def label(self) -> str:
        """The label of the values: "validation accuracy (%)", "training loss (nats)"."""
        words = (SPLITS.get(self.metric.partition("/")[0]), self.measure.label, f"({self.measure.unit})")
        return " ".join(word for word in words if word and word != "()")

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The smallest and the largest possible value of the measure as it is printed, None if it has none."""
        return (0.0, 100.0) if self.measure.unit == "%" else None


def make_panels(frames: Sequence[Frame]) -> list[Panel]:
    """Return the panels of a report: one for each sweep or task, and each value of its column or of its task options.

    Rows without runs are left out, and so are panels without runs.
    """
    panels = []
    for frame in frames:
        name = frame.title if frame.sweep else next((record.task for record in frame.records), "")
        for title, series in (_series_of_sweep(frame) if frame.sweep else _series_of_task(frame)).items():
            shown = [title] if len(frames) == 1 else [name, title]
            panels.append(Panel(without_formulas(", ".join(filter(None, shown))), series))
    return with_looks([panel for panel in panels if panel.series])


def _series_of_sweep(frame: Frame) -> dict[str, list[Series]]:
    sweep, found = frame.sweep, {}
    assert sweep is not None
    for column in frame.columns:
        title = sweep.head(column) if sweep.column == COLUMN else describe_option(sweep.column_name, column)
        found[title if len(frame.columns) > 1 else ""] = [
            Series(_label(row), {}, records, {} if sweep.layout == "tasks" else _published(row, column))
            for row in frame.rows
            if (records := frame.in_column(row, column))
        ]
    return found


def _series_of_task(frame: Frame) -> dict[str, list[Series]]:
    """Return the panels of runs that belong to no sweep: task options that differ make panels, other options rows."""
    found: dict[str, list[Series]] = {}
    for name, conditions in by_condition(frame.rows, without=HIDDEN).items():
        for condition, runs in conditions.items():
            found.setdefault(condition, []).append(Series(without_formulas(name), {}, runs))
    return found


def _label(row: Row) -> str:
    """Return the name of a row with its own settings, such as "RUM, learning rate = 0.01"."""
    name, *overrides = row.label.split("\n")
    words = (override.lstrip("+~").partition("=") for override in overrides)
    shown = (describe_option(key, value) for key, _, value in words if key not in HIDDEN)
    return without_formulas(", ".join((name, *shown)))


def _published(row: Row, column: str) -> dict[str, float]:
    """Return the published values of a row in a column by measure."""
    values = {name: row.published(name, column) for name in row.paper}
    return {name: value for name, value in values.items() if isinstance(value, int | float)}


def with_looks(panels: Sequence[Panel]) -> list[Panel]:
    """Return panels whose rows have the color, dashes and marker of their cell."""
    cells = {series.label: series.records[0].cell for panel in panels for series in panel.series}
    looks = dict(zip(cells, cell_styles([*cells.values()]), strict=True))
    return [replace(panel, series=[replace(series, look={**looks[series.label], "gid": "row"})
                                   for series in panel.series]) for panel in panels]  # fmt: skip


def measure_of(metric: str, records: Sequence[RunRecord]) -> Measure:
    """Return the measure of a metric; one without a measure is printed as it is logged."""
    name = metric.rpartition("/")[2]
    if known := measures_of(records).get(name):
        return known
    if name in ("loss", "baseline"):
        unit = loss_unit({logged for record in records for logged in (*(record.results or {}), *record.curves)})
        return Measure("loss", unit if " " in unit else name, "" if " " in unit else unit, higher_is_better=False)
    return Measure(name, name.replace("_", " "))


def references(metric: str, records: Iterable[RunRecord]) -> list[Series]:
    """Return the distinct losses of the best predictors without memory, in the unit of a metric, and informed guesses.

    A guess is the score of a predictor that knows a part of what is asked, as tasks log it. Numbers that are equal to
    three digits are one.
    """
    name = metric.rpartition("/")[2]
    factor = {"loss": 1.0, MSE.name: 1.0, BITS.name: 1 / np.log(2)}.get(name)
    baselines, guesses = {}, {}
    for record in records:
        if record.baseline is not None and factor:
            baselines[MEMORYLESS, f"{record.baseline:.3g}"] = record.baseline * factor
        for measure in record.measures:
            value = measure.value(record.results)
            if measure.floor_of == name and value is not None:
                guesses[measure.label, f"{value:.3g}"] = value
    looks = ((baselines, {**BASELINE, "gid": "baseline"}), (guesses, {**GUESS, "gid": "guess"}))
    return [Series(label, look, lines=[Line(np.empty(0), np.array([value]))])
            for found, look in looks for (label, _), value in found.items()]  # fmt: skip


def legend_of(panels: Sequence[Panel], extra: dict[str, Any] | None = None, bands: bool = False) -> dict[str, Any]:
    """Return the handles of a legend by their labels: those of rows, further ones, and those of references."""
    shown = [series for panel in panels for series in panel.series if series.lines]
    rows: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for label in dict.fromkeys(series.label for series in shown):
        same = [series for series in shown if series.label == label]
        notes, look = "; ".join(dict.fromkeys(series.note for series in same if series.note)), same[0].look
        line = Line2D([], [], **look)
        has_band = bands and same[0].is_row and any(len(series.lines) > 1 for series in same)
        handle = (Patch(color=look["color"], alpha=0.2, linewidth=0), line) if has_band else line
        found = others if look["gid"] in ("baseline", "guess") else rows
        found[f"{label} ({notes})" if notes else label] = handle
    return {**rows, **(extra or {}), **others}


def draw_panels(
    panels: Sequence[Panel],
    legend: dict[str, Any],
    draw_row: Callable[[Axes, Series, Panel], Iterator[Points]],
    options: Options,
    *,
    share: bool = False,
    integer_x: bool = False,
    from_zero: bool = False,
) -> Figure:
    """Return a figure of panels.

    Args:
        panels: the panels.
        legend: the handles of its legend by their labels.
        draw_row: draws a row and yields the points that the limits of the axes have to contain.
        options: what the plot shows.
        share: whether all panels have the same limits.
        integer_x: whether places on the x axis are whole numbers.
        from_zero: whether a linear x axis begins at 0.

    Raises:
        OptionError: a logarithmic axis has no positive value.
    """
    figure, axes = make_grid(len(panels), options.width, share_x=share, share_y=share)
    points: list[list[Points]] = []
    for one, panel in zip(axes, panels, strict=True):
        points.append([(np.array(panel.reach), np.empty(0))])
        for series in (series for series in panel.series if series.lines):
            points[-1] += draw_row(one, series, panel) if series.is_row else draw_fixed(one, series)
    places, values = ([np.concatenate([point[index] for point in own]) for own in points] for index in (0, 1))
    for one, panel, x, y in zip(axes, panels, shared(places, share), shared(values, share), strict=True):
        one.set_title(panel.title)
        for name, own in (("x", x), ("y", y)):
            if name in options.log and not (own > 0).any():
                raise OptionError(
                    "log", options.log, f"{panel.x if name == 'x' else panel.label} has no positive value"
                )
        starts = from_zero and "x" not in options.log
        set_limits(one, "x", np.append(x, [0.0] * starts), log="x" in options.log, bounds=None)
        set_limits(one, "y", y, log="y" in options.log, bounds=panel.bounds)
        if starts:
            one.set_xlim(left=0)
    label_outer(axes, [panel.x for panel in panels], [panel.label for panel in panels])
    add_legend(figure, list(legend.values()), list(legend))
    finish(axes, integer_x=integer_x)
    return figure


def draw_fixed(axes: Axes, series: Series, vertical: bool = False) -> Iterator[Points]:
    """Draw published values or the score of a simple predictor, which may be the same everywhere."""
    for line in series.lines:
        if len(line.x):
            axes.plot(line.x, line.y, **series.look)
        else:
            (axes.axvline if vertical else axes.axhline)(line.y[0], **series.look)
        yield line.x, line.y
