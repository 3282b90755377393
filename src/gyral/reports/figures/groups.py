"""The measure of runs in groups of test examples, such as by their length, with the published lines."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gyral.core.errors import OptionError
from gyral.core.measures import Measure
from gyral.reports.figures.layout import finish, label_outer, make_grid, metric_label, set_limits
from gyral.reports.figures.options import Options
from gyral.reports.figures.panels import without_formulas
from gyral.reports.figures.style import SMALL, add_legend, line_style
from gyral.reports.tables.groups_table import groups_of, published_groups
from gyral.reports.tables.sections import Section
from gyral.runs.run_record import RunRecord

GRAY = "#8a8a8a"  # of published lines of models that the sweep does not train
PUBLISHED: dict[str, Any] = {"linestyle": (0, (1.5, 1.5)), "markerfacecolor": "white", "linewidth": 0.9}
THIN = 0.7  # points, the width of lines of single runs
BAND = 0.2  # opacity


def draw_groups(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the measure of each row over the number of the group, with a panel for each section.

    A line is the mean over seeds with a band, or with seeds=all there is a line for each run. Published values are
    dotted lines with hollow marks: in the color of the row, or gray for models that the sweep does not train.

    Raises:
        OptionError: no run has logged the measure of a group.
    """
    shown = [section for section in sections if section.main and _groups(section)[1]]
    if not shown:
        raise OptionError(
            "plot", "groups", "needs results by groups, such as test/accuracy_7_operators; no run has any"
        )
    figure, axes = make_grid(len(shown), options.width, share_x=False, share_y=False)
    handles: dict[str, Line2D] = {}
    for one, section in zip(axes, shown, strict=True):
        if len(shown) > 1:
            one.set_title(without_formulas(section.title))
        handles |= _draw_section(one, section, options)
    units = [f"number of {_groups(section)[0]}" for section in shown]
    label_outer(axes, units, [metric_label(f"test/{section.measure}", section.records) for section in shown])
    add_legend(figure, list(handles.values()), [without_formulas(label) for label in handles])
    finish(axes, integer_x=True)
    return figure


def _groups(section: Section) -> tuple[str, list[int]]:
    return groups_of(section.measure, section.records)


def _draw_section(axes: Axes, section: Section, options: Options) -> dict[str, Line2D]:
    """Draw the rows of a section, and return the handles of a legend by their labels."""
    assert section.main is not None
    measure = section.main
    unit, numbers = _groups(section)
    handles: dict[str, Line2D] = {}
    reach: list[float] = []
    references = section.sweep.published if section.sweep else {}
    for index, (row, label) in enumerate(zip(section.rows, section.labels, strict=True)):
        look = line_style(index)
        values = _read(row.records, measure, unit, numbers)
        if len(values):
            reach += draw_row(axes, np.array(numbers, dtype=float), values, look, options)
            handles[label.replace("\n", ", ")] = Line2D([], [], **look)
        if published := published_groups(row.paper, measure.name):
            hollow = {**look, **PUBLISHED}
            reach += _draw_published(axes, published, hollow)
            handles[f"{label.splitlines()[0]}, published"] = Line2D([], [], **hollow)
    for index, (name, own) in enumerate(references.items()):
        look = {**line_style(index), "color": GRAY, **PUBLISHED, "markersize": 3, "zorder": 1.8}
        reach += _draw_published(axes, own, look)
        handles[f"{name}, published"] = Line2D([], [], **look)
    if section.sweep and section.sweep.trained is not None:
        _mark_trained(axes, section.sweep.trained, unit)
    groups = [*numbers, *chain.from_iterable(references.values())]
    set_limits(axes, "x", np.array(groups, dtype=float), log="x" in options.log, bounds=None)
    bounds = (0.0, 100.0) if measure.unit == "%" else None
    set_limits(axes, "y", np.array(reach), log="y" in options.log, bounds=bounds)
    return handles


def _read(records: Sequence[RunRecord], measure: Measure, unit: str, numbers: Sequence[int]) -> np.ndarray:
    """Return the results of the finished runs, (runs, groups), NaN where a group has none."""
    done = [record.results for record in records if record.results]
    names = [f"test/{measure.name}_{number}_{unit}" for number in numbers]
    return np.array([[measure.scale * results.get(name, np.nan) for name in names] for results in done])


def draw_row(axes: Axes, x: np.ndarray, values: np.ndarray, look: dict[str, Any], options: Options) -> list[float]:
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


def _draw_published(axes: Axes, values: dict[int, float], look: dict[str, Any]) -> list[float]:
    axes.plot(list(values), list(values.values()), gid="published", **look)
    return [*values.values()]


def _mark_trained(axes: Axes, number: int, unit: str) -> None:
    """Draw a line at the right of the groups that training examples are of."""
    axes.axvline(number + 0.5, color="black", linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
    text = f"trained on ≤ {number} {unit}"
    axes.text(number + 0.4, 0.03, text, transform=axes.get_xaxis_transform(), ha="right", fontsize=SMALL)
