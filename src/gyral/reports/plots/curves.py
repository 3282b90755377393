"""Metrics over training, as mean and band over seeds or with a line per run. Imports no torch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.core.errors import OptionError
from gyral.plotting.layout import finish, place_markers, spread
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import (
    MEMORYLESS,
    THIN,
    Line,
    Panel,
    Points,
    Series,
    draw_panels,
    legend_of,
    measure_of,
    references,
)
from gyral.runs.directory import METRICS
from gyral.runs.metrics_file import logged_metrics, read_curves
from gyral.runs.run_record import RunRecord, select

MARKED_ROWS = 5  # from this number of rows, lines have markers, too
TIMES = ((7200, 3600, "hours"), (300, 60, "minutes"), (0, 1, "seconds"))  # from this many seconds, seconds, unit
LOSS, SECONDS, TOKENS_A_SECOND = "train/loss", "train/seconds_a_step", "train/tokens_a_second"
LINEAR_LIMIT = 2  # baselines at which the linear axis ends; before learning, the loss is 50 times as high


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
    records = [record for panel in panels for record in panel.records]
    metrics = [options.y] * len(panels) if options.y else default_metrics(panels)
    available = metrics_of(records)
    for metric in metrics:
        if metric not in available:
            reason = f"no run has logged it; there are {', '.join(available) or 'no metrics yet'}"
            raise OptionError("y", metric, reason)
    if share is None:
        share = len({*metrics}) == 1 and len({record.task for record in records}) == 1
    is_marked = len({series.label for panel in panels for series in panel.series}) >= MARKED_ROWS
    measures = [measure_of(metric, panel.records) for panel, metric in zip(panels, metrics, strict=True)]
    label = {"step": "training step"}.get(options.x, options.x)
    panels = [
        Panel(
            panel.title,
            [_read(series, metric, measure.scale, options, is_marked) for series in panel.series]
            + references(metric, panel.records),
            metric,
            measure,
            label,
        )
        for panel, metric, measure in zip(panels, metrics, measures, strict=True)
    ]
    if options.x == "time":
        panels = _in_unit(panels)
    legend = legend_of(panels, bands=options.seeds != "all")
    baselines = {f"{series.lines[0].y[0]:.3g}" for panel in panels for series in panel.series
                 if series.label == MEMORYLESS}  # fmt: skip
    if len(baselines) == 1:
        legend = {f"{MEMORYLESS} ({next(iter(baselines))})" if label == MEMORYLESS else label: handle
                  for label, handle in legend.items()}  # fmt: skip
    draw = partial(_draw_row, options=options)
    figure = draw_panels(panels, legend, draw, options, share=share, integer_x=options.x != "time", from_zero=True)
    for axes in figure.axes:
        place_markers(axes)
    return figure


def draw_losses(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw the training losses of runs and the memoryless baseline, on a logarithmic and a linear axis for each panel.

    This is Fig. 4 of Dangovski et al. (TACL 2019).

    Raises:
        OptionError: no run has logged a finite loss.
    """
    losses = [[value for record in panel.records if LOSS in record.curves for value in record.curves[LOSS].values]
              for panel in panels]  # fmt: skip
    positive = any(max(own, default=0) > 0 for own in losses)
    pairs, limits = [], []
    for panel in (panel for panel, own in zip(panels, losses, strict=True) if own):
        baselines = [series.lines[0].y[0] for series in references(LOSS, panel.records) if series.label == MEMORYLESS]
        limits.append(LINEAR_LIMIT * max(baselines, default=0))
        cut = f"linear, cut off at {LINEAR_LIMIT} × the baseline" if baselines else "linear"
        for title in ("logarithmic" if positive else "linear", cut):
            pairs.append(replace(panel, title=", ".join(filter(None, (panel.title, title)))))
    if not pairs:
        raise OptionError("plot", options.plot, "needs training losses, and no run has logged any")
    figure = draw_curves(pairs, replace(options, y=LOSS, log="y" if positive else ""), share=False)
    for limit, axes in zip(limits, figure.axes[1::2], strict=True):
        axes.set_yscale("linear")
        if limit:
            axes.set_ylim(0, limit)
    finish(figure.axes[1::2], integer_x=True)
    for axes in figure.axes:
        place_markers(axes)
    return figure


def default_metrics(panels: Sequence[Panel]) -> list[str]:
    """Return the metric of each panel: a monitored one that all panels have, a score before a loss, else its own."""
    monitored = ((select(record.config, "task.monitor") for record in panel.records) for panel in panels)
    own = [str(next(filter(None, found), "val/loss")) for found in monitored]
    logged = [metrics_of(panel.records) for panel in panels] if len(set(own)) > 1 else []
    shared = [metric for metric in dict.fromkeys(own) if logged and all(metric in names for names in logged)]
    shared.sort(key=lambda metric: metric.endswith("/loss"))
    return shared[:1] * len(panels) or own


def _read(series: Series, metric: str, scale: float, options: Options, is_marked: bool) -> Series:
    """Return a row with the curves of the runs that count."""
    lines = [line for record in series.records if (line := read_line(record, metric, options.x, scale)) is not None]
    sound = [line for line in lines if not line.failed]
    counts = {
        "failed": sum(record.failed and not record.results for record in series.records),
        "unfinished": sum(not record.results and not record.failed for record in series.records),
    }
    notes = [f"{count} {state}" for state, count in counts.items() if count]
    if len(series.records) > 1 and notes:
        notes[-1] += f" of {len(series.records)}"
    else:
        notes = [note.removeprefix("1 ") for note in notes]
    look = series.look if is_marked else {**series.look, "marker": ""}  # few lines need no markers
    counted = sound if sound and options.seeds != "all" else lines
    return replace(series, look=look, lines=counted, note=", ".join(notes))


def _in_unit(panels: Sequence[Panel]) -> list[Panel]:
    """Return panels with their time in the unit that suits the longest run."""
    longest = max((line.x[-1] for panel in panels for series in panel.series for line in series.lines
                   if len(line.x)), default=0)  # fmt: skip
    seconds, unit = next((seconds, unit) for start, seconds, unit in TIMES if longest >= start)
    return [replace(panel, x=f"training time ({unit})", series=[
        replace(series, lines=[line._replace(x=line.x / seconds) for line in series.lines]) for series in panel.series
    ]) for panel in panels]  # fmt: skip


def _draw_row(axes: Axes, series: Series, panel: Panel, options: Options) -> Iterator[Points]:
    """Draw a row and yield the points that the limits of the axes have to contain."""
    look, singles = series.look, series.lines
    if options.seeds != "all":
        x, values, singles = average(singles)
        mean, low, high = spread(values, panel.bounds)
        if options.seeds == "range":
            low, high = values.min(axis=0), values.max(axis=0)
        elif "y" in options.log:  # which has no place for a band that reaches 0
            low = np.where(low > 0, low, values.min(axis=0))
        if len(values) > 1:
            axes.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
            yield np.append(x, x), np.append(low, high)
        axes.plot(x, mean, **look)
        yield x, mean
    for line in singles:
        axes.plot(line.x, line.y, linewidth=THIN, **{**look, "marker": "", "gid": None})
        yield line.x, line.y
    for line in series.lines:
        if line.failed:
            axes.plot(line.x[-1:], line.y[-1:], "x", color=look["color"], markersize=5, zorder=3)


def metrics_of(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the metrics that runs have logged over training."""
    names: dict[str, None] = {}
    for record in records:
        has_file = (record.directory / METRICS).is_file()
        found = logged_metrics(record.directory) if has_file else list(record.curves)
        names |= dict.fromkeys(name for name in found if not name.startswith("test/"))
    return sorted(names)


def read_line(record: RunRecord, metric: str, axis: str, scale: float) -> Line | None:
    """Return a metric of a run over training, scaled as it is printed, or None if the run has not logged it.

    Tokens and time are sums over the intervals at which the run logged its speed; validations are not included. Curves
    of Weights & Biases have the points that its server samples.

    Raises:
        OptionError: The axis is tokens or time, and the run has not logged its speed.
    """
    if (record.directory / METRICS).is_file():
        names = (metric,) if axis == "step" else (metric, SECONDS, TOKENS_A_SECOND)
        curves, _ = read_curves(record.directory, names)
    else:
        curve = record.curves.get(metric)
        curves = {metric: (curve.steps, curve.values) if curve else ([], [])}
    steps, values = (np.array(numbers, dtype=float) for numbers in curves[metric])
    order = np.argsort(steps, kind="stable")
    order = order[np.isfinite(values[order])]
    steps, values = steps[order], values[order] * scale
    if not len(steps):
        return None
    x = steps if axis == "step" else _place(record, steps, curves, axis)
    return Line(x, values, steps, record.failed and not record.results)


def _place(
    record: RunRecord, steps: np.ndarray, curves: dict[str, tuple[list[int], list[float]]], axis: str
) -> np.ndarray:
    """Return the tokens or seconds of training after each number of steps."""
    logged, seconds = (np.array(numbers, dtype=float) for numbers in curves.get(SECONDS, ([], [])))
    speeds = np.array(curves.get(TOKENS_A_SECOND, ([], []))[1])
    if not len(logged):
        raise OptionError("x", axis, f"{record.place} has no {SECONDS}, which callbacks.statistics logs; use x=step")
    if axis != "time" and not len(speeds):
        raise OptionError("x", axis, f"{record.place} is of a task without sequences, which has no tokens; use x=step")
    per_step = seconds if axis == "time" else seconds * speeds
    sums = np.cumsum(np.diff(logged, prepend=0) * per_step)
    beyond = np.maximum(steps - logged[-1], 0) * per_step[-1]  # after the last logged interval
    return np.interp(steps, np.append(0, logged), np.append(0, sums)) + beyond


def average(lines: Sequence[Line]) -> tuple[np.ndarray, np.ndarray, list[Line]]:
    """Return lines, one per seed, at the same places: at every step that one of them has and all of them have reached.

    A line without a point at a step is interpolated linearly.

    Returns:
        The mean places (n,), the values (seeds, n), and the parts of longer lines after the end of the shortest one.
    """
    own = [np.asarray(line.steps) for line in lines]
    first, last = max(steps[0] for steps in own), min(steps[-1] for steps in own)
    shared = np.unique(np.concatenate(own))
    shared = shared[(shared >= first) & (shared <= last)]
    x = np.mean([np.interp(shared, steps, line.x) for steps, line in zip(own, lines, strict=True)], axis=0)
    values = np.array([np.interp(shared, steps, line.y) for steps, line in zip(own, lines, strict=True)])
    rest = [Line(line.x[after], line.y[after]) for steps, line in zip(own, lines, strict=True)
            if (after := steps >= last).sum() > 1]  # fmt: skip
    return x, values, rest
