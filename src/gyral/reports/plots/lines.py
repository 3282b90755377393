"""The measure of rows over numbers: groups of test examples, such as by their length, or the columns of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gyral.core.errors import OptionError
from gyral.core.measures import Measure
from gyral.plotting.layout import finish, label_outer, make_grid, set_limits
from gyral.plotting.style import SMALL, add_legend, line_style, without_formulas
from gyral.reports.catalogue import Row, Sweep, columns_of, in_column
from gyral.reports.plots.metrics import metric_label
from gyral.reports.plots.options import Options
from gyral.reports.tables.groups_table import groups_of, published_groups
from gyral.reports.tables.sections import Section
from gyral.runs.names import describe_option

GRAY = "#8a8a8a"  # of rows that are published only
PUBLISHED: dict[str, Any] = {"linestyle": (0, (1.5, 1.5)), "markerfacecolor": "white", "linewidth": 0.9}
THIN = 0.7  # points, the width of lines of single runs
BAND = 0.2  # opacity


@dataclass(frozen=True)
class Lines:
    """The lines of a section.

    Attributes:
        label: the label of the x axis.
        x: (n,) places on the x axis.
        rows: for each row of the section, its values (seeds, n), NaN where one is missing.
        published: for each row, its published values by place.
    """

    label: str
    x: np.ndarray
    rows: list[np.ndarray]
    published: list[dict[int, float]]


def draw_groups(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the measure of each row over the number of the group, with a panel for each section.

    Published values are dotted lines with hollow marks: in the color of the row, or gray for rows that are published
    only.

    Raises:
        OptionError: no run has logged the measure of a group.
    """
    shown = [(section, section.main) for section in sections if section.main]
    lines = [(section, found) for section, measure in shown if len((found := _groups(section, measure)).x)]
    if not lines:
        reason = "needs results by groups, such as test/accuracy_7_operators; no run has any"
        raise OptionError("plot", "groups", reason)
    return _draw(lines, options, integer_x=True)


def draw_columns(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the measure of each row over the numbers in the columns of its sweep, with a panel for each sweep.

    Raises:
        OptionError: no sweep has columns that are numbers.
    """
    shown = [(section, section.sweep) for section in sections if section.sweep]
    lines = [(section, found) for section, sweep in shown if len((found := _columns(sweep, section.rows)).x)]
    if not lines:
        raise OptionError("plot", "columns", "needs a sweep whose column has numbers, such as learning rates")
    return _draw(lines, options, integer_x=False)


def _groups(section: Section, measure: Measure) -> Lines:
    unit, numbers = groups_of(measure.name, section.records)
    names = [f"test/{measure.name}_{number}_{unit}" for number in numbers]
    done = [[record.results for record in row.records if record.results] for row in section.rows]
    return Lines(
        f"number of {unit}",
        np.array(numbers, dtype=float),
        [np.array([[measure.scale * run.get(name, np.nan) for name in names] for run in runs]) for runs in done],
        [published_groups(row.paper, measure.name) for row in section.rows],
    )


def _columns(sweep: Sweep, rows: list[Row]) -> Lines:
    numbers: dict[str, float] = {}
    for column in columns_of(sweep, rows):
        try:
            numbers[column] = float(column)
        except ValueError:
            continue
    numbers = dict(sorted(numbers.items(), key=lambda pair: pair[1]))
    values = []
    for row in rows:
        seeds = sorted({record.seed for record in row.records})
        values.append(np.full((len(seeds), len(numbers)), np.nan))
        for place, column in enumerate(numbers):
            for record in in_column(sweep, row, column):
                value = sweep.main.value(record.results)
                values[-1][seeds.index(record.seed), place] = np.nan if value is None else value
    label = describe_option(sweep.column or "", "").removesuffix(" = ")
    return Lines(label, np.array([*numbers.values()]), values, [{} for _ in rows])


def _draw(lines: Sequence[tuple[Section, Lines]], options: Options, *, integer_x: bool) -> Figure:
    """Draw a panel for each section.

    A line is the mean over seeds with a band, or with seeds=all there is a line for each seed.
    """
    figure, axes = make_grid(len(lines), options.width, share_x=False, share_y=False)
    handles: dict[str, Line2D] = {}
    for one, (section, own) in zip(axes, lines, strict=True):
        if len(lines) > 1:
            one.set_title(without_formulas(section.title))
        handles |= _draw_section(one, section, own, options)
    measures = [metric_label(f"test/{section.measure}", section.records) for section, _ in lines]
    label_outer(axes, [own.label for _, own in lines], measures)
    add_legend(figure, list(handles.values()), [without_formulas(label) for label in handles])
    finish(axes, integer_x=integer_x)
    return figure


def _draw_section(axes: Axes, section: Section, lines: Lines, options: Options) -> dict[str, Line2D]:
    """Draw the rows of a section, and return the handles of a legend by their labels."""
    handles: dict[str, Line2D] = {}
    reach: list[float] = []
    references = 0
    for index, (row, label) in enumerate(zip(section.rows, section.labels, strict=True)):
        values, published, look = lines.rows[index], lines.published[index], line_style(index)
        measured = np.isfinite(values).any(axis=0) if len(values) else np.zeros(len(lines.x), dtype=bool)
        if measured.any():
            reach += _draw_row(axes, lines.x[measured], values[:, measured], look, options)
            handles[label.replace("\n", ", ")] = Line2D([], [], **look)
        if published:
            if section.sweep and section.sweep.is_published_only(row):
                look = {**line_style(references), "color": GRAY, "markersize": 3, "zorder": 1.8}
                references += 1
            axes.plot(list(published), list(published.values()), gid="published", **{**look, **PUBLISHED})
            reach += published.values()
            handles[f"{label.splitlines()[0]}, published"] = Line2D([], [], **{**look, **PUBLISHED})
    if section.sweep and section.sweep.trained is not None:
        _mark_trained(axes, section.sweep.trained, lines.label.removeprefix("number of "))
    x = np.array([*lines.x, *chain.from_iterable(lines.published)])
    set_limits(axes, "x", x, log="x" in options.log, bounds=None)
    bounds = (0.0, 100.0) if section.main and section.main.unit == "%" else None
    set_limits(axes, "y", np.array(reach), log="y" in options.log, bounds=bounds)
    return handles


def _draw_row(axes: Axes, x: np.ndarray, values: np.ndarray, look: dict[str, Any], options: Options) -> list[float]:
    """Draw the values (seeds, x) of a row, NaN where one is missing, and return the values for the axis limits."""
    if options.seeds == "all":
        for own in values:
            axes.plot(x, own, gid="row", **{**look, "linewidth": THIN})
        return [*values[np.isfinite(values)]]
    mean = np.nanmean(values, axis=0)
    axes.plot(x, mean, gid="row", **look)
    if len(values) == 1:
        return [*mean]
    counts = np.isfinite(values).sum(axis=0)
    spread = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(counts - 1, 1))
    low, high = mean - spread, mean + spread
    axes.fill_between(x, low, high, color=look["color"], alpha=BAND, linewidth=0)
    return [*low, *high]


def _mark_trained(axes: Axes, number: int, unit: str) -> None:
    """Draw a line at the right of the groups that training examples are of."""
    axes.axvline(number + 0.5, color="black", linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
    text = f"trained on ≤ {number} {unit}"
    axes.text(number + 0.4, 0.03, text, transform=axes.get_xaxis_transform(), ha="right", fontsize=SMALL)
