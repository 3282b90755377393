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
from gyral.core.measures import Measure, main_measure
from gyral.plotting.layout import clip_band, finish, label_outer, make_grid, set_limits, shared
from gyral.plotting.style import BASELINE, GUESS, SMALL, add_legend
from gyral.reports.plots.curves import draw_baseline, guess_labels
from gyral.reports.plots.metrics import bounds_of, measure_of, metric_label
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Panel, row_looks
from gyral.reports.tables.entries import standard_deviation
from gyral.runs.run_record import RunRecord, measures_of

ANY_ROW = "#bbbbbb"  # in a legend, of what stands for bars of all colors
ROW_HEIGHT = 0.21  # inches of a bar with its distance to the next one
ERROR_BAR: dict[str, Any] = {"elinewidth": 0.9, "capsize": 2, "capthick": 0.9}
HOLLOW: dict[str, Any] = {"linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1}
PUBLISHED_BAR: dict[str, Any] = {"marker": "D", "color": "black", **HOLLOW}
SEED_DOT: dict[str, Any] = {"linestyle": "", "marker": ".", "color": "black", "markersize": 3}


@dataclass(frozen=True)
class Result:
    """A metric of a row's finished runs.

    Attributes:
        label: the name of the row.
        values: the value of each finished run, as printed.
        parameters: the number of parameters of each finished run.
        published: the published value.
        point: the published pair of the number of parameters and the value.
    """

    label: str
    values: list[float]
    parameters: list[float]
    published: float | None
    point: tuple[float, float] | None

    @property
    def mean(self) -> float:
        return fmean(self.values) if self.values else np.nan

    @property
    def deviation(self) -> float:
        return standard_deviation(self.values) if len(self.values) > 1 else 0.0

    def ends(self, bounds: tuple[float, float] | None) -> tuple[float, float]:
        """Return the ends of the error bar: one standard deviation from the mean, but not beyond possible values."""
        low, high = np.array([self.mean - self.deviation]), np.array([self.mean + self.deviation])
        (low,), (high,) = clip_band(low, high, [np.array(self.values)], bounds)
        return float(low), float(high)


def default_result(records: Sequence[RunRecord]) -> str:
    """Return the main measure of runs on the test split."""
    return f"test/{main_measure(measures_of(records).values(), result_names(records)).name}"


def result_names(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the results that plots can show."""
    names = {name for record in records for name in record.metrics if name.startswith("test/")}
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
            raise OptionError("y", metric, f"no run has this result; available: {', '.join(result_names(records))}")
    return metrics, [_results_of(panel, metric) for panel, metric in zip(panels, metrics, strict=True)]


def _results_of(panel: Panel, metric: str) -> list[Result]:
    scale, name = measure_of(metric, panel.records).scale, metric.rpartition("/")[2]
    results = []
    for series in panel.series:
        done = [record.metrics for record in series.records if metric in record.metrics]
        published, size = series.published.get(name), series.published.get("parameters")
        point = None if published is None or size is None else (size, published)
        values, sizes = [scale * found[metric] for found in done], [found["parameters"] for found in done]
        results.append(Result(series.label, values, sizes, published, point))
    return results


def draw_bars(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw a horizontal bar for each row: the mean over seeds, its standard deviation, and the published value.

    The numbers are at the right of the panels. With seeds=all, dots show the seeds.

    Raises:
        OptionError: No run is done, or none has the metric.
    """
    metrics, results = read_results(panels, options)
    names = [[result.label for result in own] for own in results]
    same = len(set(metrics)) == 1
    height = ROW_HEIGHT * max(map(len, names)) + 0.1
    same_rows, looks = all(own == names[0] for own in names), row_looks(panels)
    figure, axes = make_grid(len(panels), options.width, height=height, share_x=same, share_y=same_rows)
    reach = []
    for one, panel, metric, own in zip(axes, panels, metrics, results, strict=True):
        one.set_title(panel.title)
        reach.append(_draw_panel_of_bars(one, own, looks, measure_of(metric, panel.records), options))
        reach[-1] += draw_baseline(one, panel.records, metric, vertical=True)
        one.set_yticks(range(len(own)), [result.label for result in own])
        one.tick_params(axis="y", length=0)
        one.grid(visible=False, axis="y")
    for one, panel, metric, values, shown in zip(axes, panels, metrics, shared(reach, same), names, strict=True):
        set_limits(one, "x", np.append(0.0, values), log=False, bounds=bounds_of(measure_of(metric, panel.records)))
        one.set_xlim(left=0 if min(values) >= 0 else None)
        one.set_ylim(len(shown) - 0.5, -0.5)
    labels = [metric_label(metric, panel.records) for metric, panel in zip(metrics, panels, strict=True)]
    label_outer(axes, labels, [""] * len(panels))
    is_published = any(result.published is not None for own in results for result in own)
    handles: dict[str, Any] = {"bar: this code": Patch(color=ANY_ROW)} if is_published else {}
    if options.seeds == "all":
        handles["one seed"] = Line2D([], [], **SEED_DOT)
    if is_published:
        handles["published"] = Line2D([], [], **PUBLISHED_BAR)
    _finish(figure, axes, handles, guess_labels(panels, metrics), integer_x=False)
    return figure


def _draw_panel_of_bars(
    axes: Axes, results: list[Result], looks: dict[str, dict[str, Any]], measure: Measure, options: Options
) -> list[float]:
    """Draw the bars of a panel, and return the values that its axis has to contain."""
    reach, digits = [0.0], measure.digits
    for place, result in enumerate(results):
        if result.values:
            ends = result.ends(bounds_of(measure))
            axes.barh(place, result.mean, color=looks[result.label]["color"], height=0.62)
            if result.deviation:
                error = np.abs(np.subtract(ends, result.mean))[:, None]
                axes.errorbar(result.mean, place, xerr=error, ecolor="black", fmt="none", **ERROR_BAR)
            reach += ends
        if options.seeds == "all":
            axes.plot(result.values, [place] * len(result.values), **SEED_DOT)
            reach += result.values
        if result.published is not None:
            axes.plot(result.published, place, zorder=3, **PUBLISHED_BAR)
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
    shown = dict.fromkeys(result.label for own in results for result in own)
    found = row_looks(panels)
    looks = {label: {**found[label], "linestyle": "", "markersize": 5} for label in shown}
    same = len(set(metrics)) == 1
    figure, axes = make_grid(len(panels), options.width, share_x=same, share_y=same)
    reach: list[tuple[list[float], list[float]]] = []
    for one, panel, metric, own in zip(axes, panels, metrics, results, strict=True):
        one.set_title(panel.title)
        bounds = bounds_of(measure_of(metric, panel.records))
        points = [point for result in own for point in _draw_point(one, result, looks[result.label], options, bounds)]
        points += [(np.nan, value) for value in draw_baseline(one, panel.records, metric)]
        reach.append(([x for x, _ in points], [y for _, y in points]))
    for one, panel, metric, x, y in zip(
        axes, panels, metrics, shared([x for x, _ in reach], same), shared([y for _, y in reach], same), strict=True
    ):
        set_limits(one, "x", x, log="x" in options.log, bounds=None)
        set_limits(one, "y", y, log="y" in options.log, bounds=bounds_of(measure_of(metric, panel.records)))
    ylabels = [metric_label(metric, panel.records) for metric, panel in zip(metrics, panels, strict=True)]
    label_outer(axes, ["parameters"] * len(panels), ylabels)
    drawn = dict.fromkeys(result.label for own in results for result in own if result.values or result.point)
    handles: dict[str, Any] = {label: Line2D([], [], **looks[label]) for label in drawn}
    if any(result.point for own in results for result in own):
        handles["hollow: published"] = Line2D([], [], marker="o", color="black", **HOLLOW)
    _finish(figure, axes, handles, guess_labels(panels, metrics), integer_x=True)
    return figure


def _draw_point(
    axes: Axes, result: Result, look: dict[str, Any], options: Options, bounds: tuple[float, float] | None
) -> list[tuple[float, float]]:
    """Draw a row, and return the points that the axes have to contain."""
    reach: list[tuple[float, float]] = []
    if result.values and options.seeds == "all":
        axes.plot(result.parameters, result.values, gid="row", **look)
        reach += zip(result.parameters, result.values, strict=True)
    elif result.values:
        size, ends = fmean(result.parameters), result.ends(bounds)
        error = np.abs(np.subtract(ends, result.mean))[:, None] if result.deviation else None
        axes.errorbar(size, result.mean, yerr=error, gid="row", **look, **ERROR_BAR)
        reach += [(size, end) for end in ends]
    if result.point:
        axes.plot(*result.point, **{**look, **HOLLOW})
        reach.append(result.point)
    return reach


def _finish(
    figure: Figure, axes: Sequence[Axes], handles: dict[str, Any], guesses: Sequence[str], *, integer_x: bool
) -> None:
    """Add the legend, with the baseline if a panel has one and with the names of informed guesses, and the ticks."""
    if any(line.get_gid() == "baseline" for one in axes for line in one.lines):
        handles["memoryless baseline"] = Line2D([], [], **BASELINE)
    handles |= {label: Line2D([], [], **GUESS) for label in guesses}
    add_legend(figure, list(handles.values()), list(handles))
    finish(axes, integer_x=integer_x, y_is_numeric=integer_x)
