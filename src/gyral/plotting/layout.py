"""Panels in a grid, their axes and labels. Imports no torch."""

import math
from collections.abc import Sequence
from textwrap import fill

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import set_ticks

MIN_HEIGHT = 1.55  # inches of a panel with its labels
LABELS = 0.4  # inches, of the labels of an axis and the title of a panel
PAD = 0.03  # inches, around panels with their labels
MARGIN = 0.05  # of an axis, between its ends and the data
MARKERS_A_LINE = 6


def make_grid(
    panels: int, width: str, *, share_x: bool, share_y: bool, height: float | None = None
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a number of panels and their axes, from left to right and from top to bottom.

    Args:
        panels: the number of panels.
        width: one of `sizes.WIDTHS`.
        share_x, share_y: whether all panels have the same limits.
        height: the height of a panel in inches, without labels; None for one that suits lines.
    """
    inches = WIDTHS[width]
    columns = _column_count(panels, width)
    rows = math.ceil(panels / columns)
    if height is None:
        height = max(MIN_HEIGHT, min(0.68 * inches / columns, 2.9 if columns == 1 else 2.3))
    else:
        height += LABELS
    figure = Figure(figsize=(inches, height * rows), layout=ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD))
    grid = figure.subplots(rows, columns, sharex=share_x, sharey=share_y, squeeze=False)
    shown = list(grid.flat)[:panels]
    for axes in list(grid.flat)[panels:]:
        axes.remove()
    for index, axes in enumerate(shown):
        axes.grid()
        axes.xaxis.set_tick_params(labelbottom=not share_x or index + columns >= panels)
        axes.yaxis.set_tick_params(labelleft=not share_y or index % columns == 0)
    return figure, shown


def _column_count(panels: int, width: str) -> int:
    if width == "column":
        return 1 if panels <= 3 else 2
    return {1: 1, 2: 2, 4: 2}.get(panels, 3 if panels <= 12 else 4)


def label_outer(axes: Sequence[Axes], xlabels: Sequence[str], ylabels: Sequence[str]) -> None:
    """Label the axes of panels; a label that all panels share is written only at the left or at the bottom."""
    place = axes[0].get_subplotspec()
    columns = place.get_gridspec().ncols if place else 1
    for index, (one, xlabel, ylabel) in enumerate(zip(axes, xlabels, ylabels, strict=True)):
        if len(set(xlabels)) > 1 or index + columns >= len(axes):
            one.set_xlabel(xlabel)
        if len(set(ylabels)) > 1 or index % columns == 0:
            one.set_ylabel(ylabel)


def shared(values: Sequence[Sequence[float] | np.ndarray], is_shared: bool) -> list[np.ndarray]:
    """Return the values that each panel has to contain: its own, or if panels share their limits, those of all."""
    own = [np.array(panel, dtype=float) for panel in values]
    return [np.concatenate(own)] * len(own) if is_shared else own


def fits_log(values: np.ndarray) -> bool:
    """Return whether a logarithmic axis fits: positive numbers over at least a factor of ten."""
    return bool(values.min() > 0 and values.max() >= 10 * values.min())


def set_limits(axes: Axes, axis: str, values: np.ndarray, *, log: bool, bounds: tuple[float, float] | None) -> None:
    """Set the limits of an axis around finite values with a margin.

    Args:
        axes: the axes.
        axis: "x" or "y".
        values: the values that are shown; on a logarithmic axis those that are not positive are ignored.
        log: whether the axis is logarithmic.
        bounds: the smallest and the largest possible value; the margin beyond them is small.
    """
    values = values[np.isfinite(values) & ((values > 0) | (not log))]
    if not len(values):
        return
    if log:
        low, high = np.log10(values.min()), np.log10(values.max())
        pad = MARGIN * (high - low) or 0.2
        limits = 10 ** (low - pad), 10 ** (high + pad)
    else:
        low, high = values.min(), values.max()
        pad = MARGIN * (high - low)
        if high - low <= 1e-6 * abs(high):
            pad = 0.1 * abs(high) or 0.1
        limits = low - pad, high + pad
        if bounds:
            limits = max(limits[0], bounds[0] - pad), min(limits[1], bounds[1] + pad)
    axes.set(**{f"{axis}scale": "log" if log else "linear", f"{axis}lim": limits})


def spread(values: np.ndarray, bounds: tuple[float, float] | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean of seeds, and the ends of a band of one standard deviation of a sample around it, each (n,).

    Args:
        values: (seeds, n), NaN where one is missing.
        bounds: the smallest and the largest possible value, where the band ends. None: below 0, if no value is.
    """
    with np.errstate(invalid="ignore"):  # an infinite loss has no deviation
        mean = np.nanmean(values, axis=0)
        count = np.isfinite(values).sum(axis=0)
        deviation = np.sqrt(np.nansum((values - mean) ** 2, axis=0) / np.maximum(count - 1, 1))
    least, most = bounds or (-np.inf if (values < 0).any() else 0.0, np.inf)
    return mean, np.clip(mean - deviation, least, most), np.clip(mean + deviation, least, most)


def finish(axes: Sequence[Axes], *, integer_x: bool, y_is_numeric: bool = True) -> None:
    """Set the ticks of all panels once the figure has its size."""
    figure = axes[0].get_figure()
    assert isinstance(figure, Figure)
    layout = figure.get_layout_engine()
    assert layout is not None

    def set_all_ticks() -> None:
        for one in axes:
            box = one.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
            set_ticks(one.xaxis, box.width, log=one.get_xscale() == "log", integer=integer_x)
            if y_is_numeric:
                set_ticks(one.yaxis, box.height, log=one.get_yscale() == "log")

    set_all_ticks()  # their labels, too, determine the size; those of Matplotlib take long on a logarithmic axis
    layout.execute(figure)
    for one in axes:
        _wrap(one)
    set_all_ticks()


def place_markers(axes: Axes) -> None:
    """Put markers on the lines of rows at equal distances, and of different rows at different places."""
    rows = [line for line in axes.lines if line.get_gid() == "row" and line.get_marker() not in ("", "None")]
    width = axes.bbox.width
    for index, line in enumerate(rows):
        points = axes.transData.transform(np.array(line.get_xydata()))
        inside = np.flatnonzero([axes.bbox.contains(x, y) for x, y in points])
        if not len(inside):
            continue
        wanted = axes.bbox.x0 + width / MARKERS_A_LINE * (np.arange(MARKERS_A_LINE) + (index + 0.5) / len(rows))
        wanted = wanted[wanted <= points[inside, 0].max()]
        nearest = [int(inside[np.abs(points[inside, 0] - place).argmin()]) for place in wanted]
        line.set_markevery(sorted({*nearest, int(inside[-1])}))


def _wrap(axes: Axes) -> None:
    """Break labels that are longer than their axis into lines."""
    box = axes.get_window_extent()
    for label, available in ((axes.xaxis.label, box.width), (axes.yaxis.label, box.height), (axes.title, box.width)):
        if label is axes.yaxis.label and label.get_rotation() == 0:  # beside the axis, not along it
            continue
        extent = label.get_window_extent()
        needed = extent.height if label is axes.yaxis.label else extent.width
        if needed > available:
            text = label.get_text()
            label.set_text(fill(text, max(8, int(len(text) * available / needed))))
