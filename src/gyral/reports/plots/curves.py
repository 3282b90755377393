"""Metrics over training, as mean and band over seeds or with a line per run. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gyral.core.errors import OptionError
from gyral.core.measures import BITS, MSE
from gyral.plotting.layout import clip_band, finish, label_outer, make_grid, place_markers, set_limits, shared
from gyral.plotting.style import BASELINE, GUESS, add_legend
from gyral.reports.plots.curve_data import Line, Mean, average, metrics_of, read_line
from gyral.reports.plots.metrics import bounds_of, measure_of, metric_label
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Panel, Series, row_looks
from gyral.runs.run_record import RunRecord, select

MARKED_ROWS = 5  # from this number of rows, lines have markers, too
THIN = 0.7  # points, the width of lines of single runs
TIMES = ((7200, 3600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))  # from this many seconds, seconds, unit


@dataclass(frozen=True)
class Drawn:
    """The runs of a row in a panel that are drawn, with their curves.

    Attributes:
        lines: the curve of each run that counts, and whether the run failed.
        note: the failed and unfinished runs of the row; empty if all runs are finished.
    """

    lines: list[tuple[Line, bool]]
    note: str


def draw_curves(panels: Sequence[Panel], options: Options, share: bool | None = None) -> Figure:
    """Draw a metric of runs over training.

    A panel has a line for each row: its mean over seeds with a band, or with seeds=all a line for each run. Runs that
    failed are left out of means. Where one run of a row is longer than another, the mean ends with the shorter one, and
    a thin line shows the rest of the longer one.

    Args:
        panels: the panels.
        options: what the plot shows.
        share: whether the panels have the same limits; None if they show the same metric of the same task.

    Raises:
        OptionError: No run has logged the metric or, for another x axis than steps, the speed; or a logarithmic axis
            has no positive value.
    """
    metrics = [options.y] * len(panels) if options.y else default_metrics(panels)
    check_logged(metrics, [record for panel in panels for record in panel.records])
    pairs = list(zip(panels, metrics, strict=True))
    rows = [[_read(series, metric, options) for series in panel.series] for panel, metric in pairs]
    seconds, unit = _time_unit(rows) if options.x == "time" else (1, "")
    if share is None:
        share = len(set(metrics)) == 1 and len({record.task for panel in panels for record in panel.records}) == 1
    figure, axes = make_grid(len(panels), options.width, share_x=share, share_y=share)
    labels = list(dict.fromkeys(one.label for panel in panels for one in panel.series))
    looks = row_looks(panels)
    if len(labels) < MARKED_ROWS:  # few lines need no markers
        looks = {label: {**look, "marker": ""} for label, look in looks.items()}
    reach: list[tuple[np.ndarray, np.ndarray]] = []
    for one, panel, metric, drawn in zip(axes, panels, metrics, rows, strict=True):
        bounds = bounds_of(measure_of(metric, panel.records))
        extent = [
            _draw_row(one, row, looks[series.label], seconds, options, bounds)
            for series, row in zip(panel.series, drawn, strict=True)
        ]
        extent += [(np.empty(0), np.array(draw_baseline(one, panel.records, metric)))]
        reach.append((np.concatenate([x for x, _ in extent]), np.concatenate([y for _, y in extent])))
        one.set_title(panel.title)
    xs, ys = (shared([*values], share) for values in zip(*reach, strict=True))
    for one, panel, metric, x, y in zip(axes, panels, metrics, xs, ys, strict=True):
        _set_limits(one, panel.records, metric, x, y, options)
    named = [metric_label(metric, panel.records) for panel, metric in pairs]
    label_outer(axes, [_x_label(options.x, unit)] * len(panels), named)
    add_legend(figure, *_legend_entries(panels, rows, looks, metrics, options.seeds != "all"))
    finish(axes, integer_x=options.x != "time")
    for one in axes:
        place_markers(one)
    return figure


def default_metric(records: Sequence[RunRecord]) -> str:
    """Return the metric that the runs' task monitors, by default the validation loss."""
    return str(next((found for record in records if (found := select(record.config, "task.monitor"))), "val/loss"))


def default_metrics(panels: Sequence[Panel]) -> list[str]:
    """Return the metric of each panel: a monitored one that all panels have, a score before a loss, else its own."""
    own = [default_metric(panel.records) for panel in panels]
    logged = [metrics_of(panel.records) for panel in panels] if len(set(own)) > 1 else []
    shared = [metric for metric in dict.fromkeys(own) if logged and all(metric in names for names in logged)]
    shared.sort(key=lambda metric: metric.endswith("/loss"))
    return shared[:1] * len(panels) or own


def check_logged(metrics: Sequence[str], records: Sequence[RunRecord]) -> None:
    """Raise an error about the option `y` if no run has logged one of the metrics over training."""
    available = metrics_of(records)
    for metric in metrics:
        if metric not in available:
            raise OptionError(
                "y", metric, f"no run has logged it; there are {', '.join(available) or 'no metrics yet'}"
            )


def _read(series: Series, metric: str, options: Options) -> Drawn:
    """Return the curves of a row's runs that count."""
    found = [(record, read_line(record, metric, options.x)) for record in series.records]
    lines = [(line, record.failed and not record.results) for record, line in found if line is not None]
    failed = sum(has_failed for _, has_failed in lines) + sum(record.failed for record, line in found if line is None)
    unfinished = sum(not record.results and not record.failed for record in series.records)
    sound = [pair for pair in lines if not pair[1]]
    counted = sound if sound and options.seeds != "all" else lines
    notes = [f"{count} {state}" for count, state in ((failed, "failed"), (unfinished, "unfinished")) if count]
    if len(series.records) > 1 and notes:
        notes[-1] += f" of {len(series.records)}"
    else:
        notes = [note.removeprefix("1 ") for note in notes]
    return Drawn(counted, ", ".join(notes))


def _draw_row(
    axes: Axes,
    row: Drawn,
    look: dict[str, Any],
    seconds: float,
    options: Options,
    bounds: tuple[float, float] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw a row and return the points that the limits of the axes have to contain."""
    lines = [(replace(line, x=line.x / seconds), failed) for line, failed in row.lines]
    if not lines:
        return np.empty(0), np.empty(0)
    singles = [line for line, _ in lines]
    shown: list[Line | Mean] = [*singles]
    bands: list[tuple[np.ndarray, np.ndarray]] = []
    if options.seeds != "all":
        mean = average(singles)
        low, high = mean.y - mean.deviation, mean.y + mean.deviation
        if options.seeds == "range":
            low, high = mean.low, mean.high
        elif "y" in options.log:  # which has no place for a band that reaches 0
            low = np.where(low > 0, low, mean.low)
        low, high = clip_band(low, high, [line.y for line in singles], bounds)
        if len(singles) > 1:
            bands = [(mean.x, low), (mean.x, high)]
            axes.fill_between(mean.x, low, high, color=look["color"], alpha=0.2, linewidth=0)
        axes.plot(mean.x, mean.y, gid="row", **look)
        singles = mean.rest
        shown = [*singles, mean]
    for line in singles:
        axes.plot(line.x, line.y, linewidth=THIN, **{**look, "marker": ""})
    for line, failed in lines:
        if failed:
            axes.plot(line.x[-1:], line.y[-1:], "x", color=look["color"], markersize=5, zorder=3)
    points = [*((line.x, line.y) for line in shown), *bands]
    return np.concatenate([x for x, _ in points]), np.concatenate([y for _, y in points])


def draw_baseline(axes: Axes, records: Sequence[RunRecord], metric: str, vertical: bool = False) -> list[float]:
    """Draw lines at the loss of the best predictor without memory and at informed guesses, and return their values."""
    values = baselines(records, metric)
    guesses = [value for _, value in informed_guesses(records, metric)]
    for value in values:
        (axes.axvline if vertical else axes.axhline)(value, gid="baseline", **BASELINE)
    for value in guesses:
        (axes.axvline if vertical else axes.axhline)(value, gid="guess", **GUESS)
    return [*values, *guesses]


def informed_guesses(records: Sequence[RunRecord], metric: str) -> list[tuple[str, float]]:
    """Return the scores of predictors that know a part of what is asked, with their names, as tasks log them."""
    name, found = metric.rpartition("/")[2], {}
    for record in records:
        for measure in record.measures:
            value = measure.value(record.results)
            if measure.floor_of == name and value is not None:
                found[measure.label, f"{value:.3g}"] = value
    return [(label, value) for (label, _), value in found.items()]


def baselines(records: Sequence[RunRecord], metric: str) -> list[float]:
    """Return the distinct losses, to three digits, of the best predictors without memory, in the metric's unit."""
    factor = {"loss": 1.0, MSE.name: 1.0, BITS.name: 1 / np.log(2)}.get(metric.rpartition("/")[2])
    found = [record.baseline for record in records if record.baseline is not None and factor]
    return [value * (factor or 1) for value in {f"{value:.3g}": value for value in found}.values()]


def _set_limits(
    axes: Axes, records: Sequence[RunRecord], metric: str, x: np.ndarray, y: np.ndarray, options: Options
) -> None:
    for axis, values in (("x", x), ("y", y)):
        log = axis in options.log
        if log and not (values > 0).any():
            name = options.x if axis == "x" else metric
            raise OptionError("log", options.log, f"{name} has no positive value")
        bounds = bounds_of(measure_of(metric, records)) if axis == "y" else None
        from_zero = [0.0] if axis == "x" and not log else []
        set_limits(axes, axis, np.append(values, from_zero), log=log, bounds=bounds)
    if "x" not in options.log:
        axes.set_xlim(left=0)


def _legend_entries(
    panels: Sequence[Panel],
    rows: Sequence[Sequence[Drawn]],
    looks: dict[str, dict[str, Any]],
    metrics: Sequence[str],
    with_bands: bool,
) -> tuple[list[Any], list[str]]:
    """Return the handles and labels of a legend: the rows with their failed and unfinished runs, and the baseline."""
    handles: list[Any] = []
    texts = []
    for label, look in looks.items():
        drawn = [row for panel, own in zip(panels, rows, strict=True)
                 for series, row in zip(panel.series, own, strict=True) if series.label == label]  # fmt: skip
        if not any(row.lines for row in drawn):
            continue
        notes = list(dict.fromkeys(row.note for row in drawn if row.note))
        line = Line2D([], [], **look)
        with_band = with_bands and any(len(row.lines) > 1 for row in drawn)
        handles.append((Patch(color=look["color"], alpha=0.2, linewidth=0), line) if with_band else line)
        texts.append(f"{label} ({'; '.join(notes)})" if notes else label)
    found = {f"{value:.3g}" for panel, metric in zip(panels, metrics, strict=True)
             for value in baselines(panel.records, metric)}  # fmt: skip
    if found:
        handles.append(Line2D([], [], **BASELINE))
        texts.append("memoryless baseline" + (f" ({found.pop()})" if len(found) == 1 else ""))
    for label in guess_labels(panels, metrics):
        handles.append(Line2D([], [], **GUESS))
        texts.append(label)
    return handles, texts


def guess_labels(panels: Sequence[Panel], metrics: Sequence[str]) -> list[str]:
    """Return the names of the informed guesses that panels with these metrics show."""
    pairs = zip(panels, metrics, strict=True)
    return [*dict.fromkeys(label for panel, metric in pairs for label, _ in informed_guesses(panel.records, metric))]


def _time_unit(rows: Sequence[Sequence[Drawn]]) -> tuple[int, str]:
    longest = max((line.x[-1] for panel in rows for row in panel for line, _ in row.lines), default=0)
    return next((seconds, unit) for start, seconds, unit in TIMES if longest >= start)


def _x_label(axis: str, unit: str) -> str:
    return {"step": "training step", "tokens": "tokens", "time": f"training time ({unit})"}[axis]
