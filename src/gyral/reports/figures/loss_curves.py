"""The training losses of all runs of a sweep (Fig. 4 of Dangovski et al., TACL 2019). Imports no torch."""

import math
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.reports.catalogue import Row
from gyral.reports.tables.labels import common_overrides
from gyral.reports.tables.sections import Section
from gyral.runs.records import Curve

NAME = "loss_curves"  # of the files, .png and .pdf
# The color-blind-safe palette of Okabe and Ito, and four more colors; black is the baseline. Colors, line styles and
# markers cycle at the same time: neighbors differ in all three, and no two of 180 curves look alike.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#332288", "#56b4e9", "#e69f00", "#8c510a", "#a0a000", "#7f7f7f")
LINE_STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
LINEAR_LIMIT = 2  # baselines at which the linear axis ends; before learning, the loss is 50 times as high


def draw_loss_curves(section: Section, directory: Path) -> Path:
    """Draw the training losses of a section's runs and the memoryless baseline, on a logarithmic and a linear axis.

    The figure is saved in the directory as loss_curves.png and loss_curves.pdf.

    Returns:
        The path of the PNG file.
    """
    with matplotlib.rc_context({"font.size": 11}):
        figure = loss_curves(section)
        figure.savefig(directory / f"{NAME}.pdf", metadata={"CreationDate": None})
        figure.savefig(directory / f"{NAME}.png", dpi=150)
    return directory / f"{NAME}.png"


def loss_curves(section: Section) -> Figure:
    """Return the figure of a section's training losses."""
    shared = common_overrides(section.rows)
    figure = Figure(figsize=(9, 9.5), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for index, row in enumerate(section.rows):
        if curves := _curves_of(row):
            _draw_row((upper, lower), curves, _legend_label(row, shared), index, len(section.rows))
    baselines = sorted({record.baseline for record in section.records if record.baseline is not None})
    for axes in (upper, lower):
        for index, baseline in enumerate(baselines):
            label = "_" if index else "memoryless baseline"
            axes.axhline(baseline, color="black", linewidth=3, zorder=1.5, label=label)
        axes.grid(alpha=0.3)
        axes.set_ylabel("training loss (nats)")
    positive = any(value > 0 for line in upper.lines for value in line.get_ydata())
    upper.set_yscale("log" if positive else "linear")
    upper.set_title("logarithmic", loc="left", fontsize="medium")
    lower.set_xlabel("optimizer steps")
    if baselines:
        lower.set_ylim(0, LINEAR_LIMIT * max(baselines))
        lower.set_title(f"linear, cut off at {LINEAR_LIMIT} times the baseline", loc="left", fontsize="medium")
    figure.suptitle(_title(section, shared), x=0.01, ha="left")
    figure.legend(*upper.get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=3.5)
    figure.align_ylabels()
    return figure


def line_style(index: int) -> dict[str, Any]:
    """Return the color, line style and marker of a row."""
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def _draw_row(panels: tuple[Axes, Axes], curves: list[Curve], label: str, index: int, rows: int) -> None:
    # one line for all seeds, with gaps between them: a thousand lines take many times as long
    steps = [step for curve in curves for step in (*curve.steps, math.nan)]
    losses = [loss for curve in curves for loss in (*curve.values, math.nan)]
    marks = (index / rows / 8, 0.125)  # offset, so that markers of two rows do not overlap
    for axes in panels:
        axes.plot(steps, losses, label=label, linewidth=1.4, markersize=5, markevery=marks, **line_style(index))


def _curves_of(row: Row) -> list[Curve]:
    curves = [record.curves.get("train/loss") for record in row.records]
    return [curve for curve in curves if curve and curve.values]


def _legend_label(row: Row, shared: list[str]) -> str:
    """Return the name of a row with its own overrides, except the number of steps, which the x axis shows."""
    own = [item for item in row.setting if item not in shared and not item.startswith("trainer.max_steps=")]
    return "\n".join((row.name, *own)) + ("" if all(record.results for record in row.records) else " (not done)")


def _title(section: Section, shared: list[str]) -> str:
    curves = [curve for row in section.rows for curve in _curves_of(row)]
    intervals = ", ".join(map(str, sorted({curve.interval for curve in curves})))
    thinned = "; thinned" if any(curve.logged > len(curve.values) for curve in curves) else ""
    parts = (section.title, " ".join(shared), f"each point is the mean of {intervals} steps{thinned}")
    return "; ".join(filter(None, parts))
