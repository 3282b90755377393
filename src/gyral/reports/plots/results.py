"""The results of runs as bars, or over the number of parameters. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gyral.core.errors import OptionError
from gyral.core.measures import main_measure
from gyral.plotting.layout import finish, label_outer, make_grid, set_limits, shared, spread
from gyral.plotting.style import SMALL, add_legend
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import (
    Line,
    Panel,
    Points,
    Series,
    draw_fixed,
    draw_panels,
    legend_of,
    measure_of,
    references,
)
from gyral.runs.run_record import measures_of

ANY_ROW = "#bbbbbb"  # in a legend, of what stands for bars of all colors
ROW_HEIGHT = 0.21  # inches of a bar with its distance to the next one
ERROR_BAR: dict[str, Any] = {"elinewidth": 0.9, "capsize": 2, "capthick": 0.9}
HOLLOW: dict[str, Any] = {"linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1, "gid": "published"}
PUBLISHED_BAR: dict[str, Any] = {"marker": "D", "color": "black", **HOLLOW}
SEED_DOT: dict[str, Any] = {"linestyle": "", "marker": ".", "color": "black", "markersize": 3}


def read_results(panels: Sequence[Panel], options: Options) -> list[Panel]:
    """Return panels with the results of their rows over their numbers of parameters.

    Raises:
        OptionError: No run is done, or none has the metric.
    """
    names = {name for panel in panels for record in panel.records for name in record.metrics}
    if not names:
        raise OptionError("plot", options.plot, "needs runs that are DONE, and no run is")
    available, found = sorted(name for name in names - {"test/baseline"} if name.startswith("test/")), []
    for panel in panels:
        tested = {name for record in panel.records for name in record.metrics if name in available}
        metric = options.y or f"test/{main_measure(measures_of(panel.records).values(), tested).name}"
        if metric not in available:
            raise OptionError("y", metric, f"no run has this result; available: {', '.join(available)}")
        panel = replace(panel, metric=metric, measure=measure_of(metric, panel.records), x="parameters")
        series = [
            replace(one, lines=[
                Line(np.array([run.metrics["parameters"]]), np.array([panel.measure.scale * run.metrics[metric]]))
                for run in one.records if metric in run.metrics
            ])
            for one in panel.series
        ]  # fmt: skip
        found.append(replace(panel, series=[*series, *references(metric, panel.records)]))
    return found


def draw_bars(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw a horizontal bar for each row: the mean over seeds, its standard deviation, and the published value.

    The numbers are at the right of the panels. With seeds=all, dots show the seeds.

    Raises:
        OptionError: No run is done, or none has the metric.
    """
    return bars_of(read_results(panels, options), options)


def bars_of(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw the results of panels as bars, see `draw_bars`."""
    rows = [[series for series in panel.series if series.is_row] for panel in panels]
    names = [[series.label for series in own] for own in rows]
    published = [[series.published.get(panel.measure.name) for series in own]
                 for panel, own in zip(panels, rows, strict=True)]  # fmt: skip
    same, height = len({panel.metric for panel in panels}) == 1, ROW_HEIGHT * max(map(len, names)) + 0.1
    share_y = all(own == names[0] for own in names)
    figure, axes = make_grid(len(panels), options.width, height=height, share_x=same, share_y=share_y)
    reach: list[list[float]] = []
    for one, panel, own, values in zip(axes, panels, rows, published, strict=True):
        reach.append([0.0])
        for place, (series, value) in enumerate(zip(own, values, strict=True)):
            reach[-1] += _draw_bar(one, place, series, panel, options)
            if value is not None:
                one.plot(value, place, zorder=3, **PUBLISHED_BAR)
                reach[-1].append(value)
        others = [series for series in panel.series if not series.is_row]
        reach[-1] += [y[0] for series in others for _, y in draw_fixed(one, series, vertical=True)]
    for one, panel, labels, points in zip(axes, panels, names, shared(reach, same), strict=True):
        one.set_title(panel.title)
        one.set_yticks(range(len(labels)), labels)
        one.tick_params(axis="y", length=0)
        one.grid(visible=False, axis="y")
        set_limits(one, "x", points, log=False, bounds=panel.bounds)
        one.set_xlim(left=0 if points.min() >= 0 else None)
        one.set_ylim(len(labels) - 0.5, -0.5)
    label_outer(axes, [panel.label for panel in panels], [""] * len(panels))
    is_published = any(value is not None for own in published for value in own)
    handles: dict[str, Any] = {"bar: this code": Patch(color=ANY_ROW)} if is_published else {}
    if options.seeds == "all":
        handles["one seed"] = Line2D([], [], **SEED_DOT)
    if is_published:
        handles["published"] = Line2D([], [], **PUBLISHED_BAR)
    fixed = [replace(panel, series=[one for one in panel.series if not one.is_row]) for panel in panels]
    handles |= legend_of(fixed)
    add_legend(figure, list(handles.values()), list(handles))
    finish(axes, integer_x=False, y_is_numeric=False)
    return figure


def _draw_bar(axes: Axes, place: int, series: Series, panel: Panel, options: Options) -> list[float]:
    """Draw the bar of a row, and return the values that the axis has to contain."""
    reach, text, values = [], "–", np.array([line.y for line in series.lines])
    if len(values):
        (mean,), (low,), (high,) = spread(values, panel.bounds)
        axes.barh(place, mean, color=series.look["color"], height=0.62)
        if high > low:
            axes.errorbar(mean, place, xerr=[[mean - low], [high - mean]], ecolor="black", fmt="none", **ERROR_BAR)
        reach, text = [low, high], f"{mean:.{panel.measure.digits}f}"
        if len(values) > 1:
            text += f" ± {values.std(ddof=1):.{panel.measure.digits}f}"
        if options.seeds == "all":
            axes.plot(values[:, 0], [place] * len(values), **SEED_DOT)
            reach += [*values[:, 0]]
    at_right = axes.get_yaxis_transform()
    axes.text(1.02, place, text, transform=at_right, va="center", fontsize=SMALL, gid="number")
    return reach


def draw_parameters(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw the score of each row over its number of parameters: means over seeds, or with seeds=all every run.

    Published pairs of number and score are hollow marks.

    Raises:
        OptionError: No run is done, or none has the metric; or a logarithmic axis has no positive value.
    """
    found = []
    for panel in read_results(panels, options):
        shown = []
        for series in panel.series:
            if not series.is_row:
                shown.append(series)
                continue
            look = {**series.look, "linestyle": "", "markersize": 5}
            shown.append(replace(series, look=look))
            size, value = series.published.get("parameters"), series.published.get(panel.measure.name)
            if size is not None and value is not None:
                line = Line(np.array([size]), np.array([value]))
                shown.append(Series(series.label, {**look, **HOLLOW}, lines=[line]))
        found.append(replace(panel, series=shown))
    is_published = any(series.look["gid"] == "published" for panel in found for series in panel.series)
    extra = {"hollow: published": Line2D([], [], marker="o", color="black", **HOLLOW)} if is_published else {}
    same = len({panel.metric for panel in found}) == 1
    draw = partial(_draw_points, options=options)
    return draw_panels(found, legend_of(found, extra), draw, options, share=same, integer_x=True)


def _draw_points(axes: Axes, series: Series, panel: Panel, options: Options) -> Iterator[Points]:
    """Draw a row, and yield the points that the axes have to contain."""
    x, values = np.concatenate([line.x for line in series.lines]), np.array([line.y for line in series.lines])
    if options.seeds == "all":
        axes.plot(x, values[:, 0], **series.look)
        yield x, values[:, 0]
    else:
        (mean,), (low,), (high,) = spread(values, panel.bounds)
        error = ([mean - low], [high - mean]) if high > low else None
        axes.errorbar(x.mean(), mean, yerr=error, **series.look, **ERROR_BAR)
        yield x.mean() * np.ones(2), np.array([low, high])
