"""The results of runs as bars, or over the number of parameters. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gyral.core.errors import OptionError
from gyral.core.measures import main_measure
from gyral.plotting.layout import finish, label_outer, make_grid, set_limits
from gyral.plotting.style import BASELINE, COLORS, SMALL, add_legend, line_style
from gyral.reports.plots.curves import draw_baseline
from gyral.reports.plots.metrics import measure_of, metric_label
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Panel, Series
from gyral.reports.tables.entries import standard_deviation
from gyral.runs.run_record import RunRecord, measures_of

ROW_HEIGHT = 0.21  # inches of a bar with its distance to the next one
ERROR_BAR: dict[str, Any] = {"elinewidth": 0.9, "capsize": 2, "capthick": 0.9}
HOLLOW: dict[str, Any] = {"linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1}
SEED_DOT: dict[str, Any] = {"linestyle": "", "marker": ".", "color": "black", "markersize": 3}


@dataclass(frozen=True)
class Result:
    """A metric of a row's finished runs.

    Attributes:
        series: the row.
        values: the value of each finished run, as printed.
        parameters: the number of parameters of each finished run.
        published: the published value.
    """

    series: Series
    values: list[float]
    parameters: list[float]
    published: float | None

    @property
    def mean(self) -> float:
        return fmean(self.values) if self.values else np.nan

    @property
    def deviation(self) -> float:
        return standard_deviation(self.values) if len(self.values) > 1 else 0.0


def default_result(records: Sequence[RunRecord]) -> str:
    """Return the main measure of runs on the test split."""
    return f"test/{main_measure(measures_of(records).values(), result_names(records)).name}"


def result_names(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the results that plots can show."""
    names = {name for record in records for name in record.results or {} if name.startswith("test/")}
    return sorted(names - {"test/baseline"})


def read_results(panels: Sequence[Panel], options: Options) -> tuple[list[str], list[list[Result]]]:
    """Return the metric of each panel, and the results of its rows.

    Raises:
        OptionError: No run is done, or none has the metric.
    """
    records = [record for panel in panels for record in panel.records]
    if not any(record.results for record in records):
        raise OptionError("plot", options.plot, "needs runs that are DONE, and no run is")
    metrics = [options.y or default_result(panel.records) for panel in panels]
    for metric in metrics:
        if metric not in result_names(records):
            raise OptionError("y", metric, f"is the result of no run; there are {', '.join(result_names(records))}")
    results = []
    for panel, metric in zip(panels, metrics, strict=True):
        scale, name = measure_of(metric, panel.records).scale, metric.rpartition("/")[2]
        own = []
        for series in panel.series:
            done = [record.results for record in series.records if metric in (record.results or {})]
            values = [scale * found[metric] for found in done if found]
            sizes = [found["parameters"] for found in done if found]
            own.append(Result(series, values, sizes, dict(series.published).get(name)))
        results.append(own)
    return metrics, results


def draw_bars(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw a horizontal bar for each row: the mean over seeds, its standard deviation, and the published value.

    The numbers are at the right of the panels. With seeds=all, dots show the seeds.

    Raises:
        OptionError: No run is done, or none has the metric.
    """
    metrics, results = read_results(panels, options)
    names = [[result.series.label for result in own] for own in results]
    same = len(set(metrics)) == 1
    height = ROW_HEIGHT * max(map(len, names)) + 0.1
    same_rows = all(own == names[0] for own in names)
    figure, axes = make_grid(len(panels), options.width, height=height, share_x=same, share_y=same_rows)
    reach = []
    for one, panel, metric, own in zip(axes, panels, metrics, results, strict=True):
        one.set_title(panel.title)
        reach.append(_draw_panel_of_bars(one, own, measure_of(metric, panel.records).digits, options))
        reach[-1] += draw_baseline(one, panel.records, metric, vertical=True)
        one.set_yticks(range(len(own)), [result.series.label for result in own])
        one.tick_params(axis="y", length=0)
        one.grid(visible=False, axis="y")
    if same:
        reach = [[value for values in reach for value in values]] * len(reach)
    for one, panel, metric, values, shown in zip(axes, panels, metrics, reach, names, strict=True):
        percent = measure_of(metric, panel.records).unit == "%"
        set_limits(one, "x", np.array([0.0, *values]), log=False, bounds=(0.0, 100.0) if percent else None)
        one.set_xlim(left=0 if min(values) >= 0 else None)
        one.set_ylim(len(shown) - 0.5, -0.5)
    labels = [metric_label(metric, panel.records) for metric, panel in zip(metrics, panels, strict=True)]
    label_outer(axes, labels, [""] * len(panels))
    handles: list[tuple[Any, str]] = [(Patch(color=COLORS[0]), "this code")] if _has_published(results) else []
    add_legend(figure, *zip_entries(handles + _common_entries(results, axes, options)))
    finish(axes, integer_x=False, y_is_numeric=False)
    return figure


def _draw_panel_of_bars(axes: Axes, results: list[Result], digits: int, options: Options) -> list[float]:
    """Draw the bars of a panel, and return the values that its axis has to contain."""
    reach = [0.0]
    for place, result in enumerate(results):
        if result.values:
            error = result.deviation or None
            axes.barh(place, result.mean, xerr=error, error_kw=ERROR_BAR, color=COLORS[0], height=0.62)
            reach += [result.mean - result.deviation, result.mean + result.deviation]
        if options.seeds == "all":
            axes.plot(result.values, [place] * len(result.values), **SEED_DOT)
            reach += result.values
        if result.published is not None:
            axes.plot(result.published, place, "D", color=COLORS[1], zorder=3, **HOLLOW)
            reach.append(result.published)
        text = f"{result.mean:.{digits}f}" if result.values else "–"
        text += f" ± {result.deviation:.{digits}f}" if len(result.values) > 1 else ""
        at_right = axes.get_yaxis_transform()
        axes.text(1.02, place, text, transform=at_right, va="center", fontsize=SMALL, gid="number")
    return reach


def draw_parameters(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw the score of each row over its number of parameters: means over seeds, or with seeds=all every run.

    Published pairs of number and score are hollow marks.

    Raises:
        OptionError: No run is done, or none has the metric; or a logarithmic axis has no positive value.
    """
    metrics, results = read_results(panels, options)
    labels = list(dict.fromkeys(result.series.label for own in results for result in own))
    same = len(set(metrics)) == 1
    figure, axes = make_grid(len(panels), options.width, share_x=same, share_y=same)
    reach: list[tuple[list[float], list[float]]] = []
    for one, panel, metric, own in zip(axes, panels, metrics, results, strict=True):
        one.set_title(panel.title)
        points = [point for result in own for point in _draw_point(one, result, labels, options)]
        points += [(np.nan, value) for value in draw_baseline(one, panel.records, metric)]
        reach.append(([x for x, _ in points], [y for _, y in points]))
    if same:
        reach = [([v for x, _ in reach for v in x], [v for _, y in reach for v in y])] * len(reach)
    for one, panel, metric, (x, y) in zip(axes, panels, metrics, reach, strict=True):
        set_limits(one, "x", np.array(x), log="x" in options.log, bounds=None)
        percent = measure_of(metric, panel.records).unit == "%"
        set_limits(one, "y", np.array(y), log="y" in options.log, bounds=(0.0, 100.0) if percent else None)
    ylabels = [metric_label(metric, panel.records) for metric, panel in zip(metrics, panels, strict=True)]
    label_outer(axes, ["parameters"] * len(panels), ylabels)
    shown = dict.fromkeys(result.series.label for own in results for result in own if result.values or _point(result))
    handles = [(Line2D([], [], **_look(labels.index(label))), label) for label in shown]
    add_legend(figure, *zip_entries(handles + _common_entries(results, axes, options)))
    finish(axes, integer_x=True)
    return figure


def _look(index: int) -> dict[str, Any]:
    return {**line_style(index), "linestyle": "", "markersize": 5}


def _point(result: Result) -> tuple[float, float] | None:
    """Return the published number of parameters and value of a row, if both are published."""
    size = result.series.parameters
    return None if size is None or result.published is None else (size, result.published)


def _draw_point(axes: Axes, result: Result, labels: list[str], options: Options) -> list[tuple[float, float]]:
    """Draw a row, and return the points that the axes have to contain."""
    look = _look(labels.index(result.series.label))
    reach: list[tuple[float, float]] = []
    if result.values and options.seeds == "all":
        axes.plot(result.parameters, result.values, gid="row", **look)
        reach += zip(result.parameters, result.values, strict=True)
    elif result.values:
        size = fmean(result.parameters)
        axes.errorbar(size, result.mean, yerr=result.deviation or None, gid="row", **look, **ERROR_BAR)
        reach += [(size, result.mean - result.deviation), (size, result.mean + result.deviation)]
    if published := _point(result):
        axes.plot(*published, **{**look, **HOLLOW})
        reach.append(published)
    return reach


def _has_published(results: Sequence[Sequence[Result]]) -> bool:
    return any(result.published is not None for own in results for result in own)


def _common_entries(
    results: Sequence[Sequence[Result]], axes: Sequence[Axes], options: Options
) -> list[tuple[Any, str]]:
    """Return the handles and labels of seeds, published values and the baseline, as far as a plot has them."""
    entries: list[tuple[Any, str]] = []
    if options.plot == "bars" and options.seeds == "all":
        entries.append((Line2D([], [], **SEED_DOT), "one seed"))
    if options.plot == "bars" and _has_published(results):
        entries.append((Line2D([], [], marker="D", color=COLORS[1], **HOLLOW), "published"))
    elif any(_point(result) for own in results for result in own):
        entries.append((Line2D([], [], marker="o", color="black", **HOLLOW), "hollow: published"))
    if any(line.get_gid() == "baseline" for one in axes for line in one.lines):
        entries.append((Line2D([], [], **BASELINE), "memoryless baseline"))
    return entries


def zip_entries(entries: Sequence[tuple[Any, str]]) -> tuple[list[Any], list[str]]:
    """Return handles and labels of a legend from pairs of them."""
    return [handle for handle, _ in entries], [label for _, label in entries]
