"""The training losses of all runs of a sweep (Fig. 4 of Dangovski et al., TACL 2019). Imports no torch."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from gyral.plotting.layout import finish
from gyral.plotting.style import save, style
from gyral.reports.plots.curves import baselines, draw_curves, place_markers
from gyral.reports.plots.drawing import describe
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Panel, make_panels
from gyral.reports.tables.sections import Section
from gyral.runs.run_record import RunRecord

NAME = "loss_curves"  # of the files, .png and .pdf
METRIC = "train/loss"
LINEAR_LIMIT = 2  # baselines at which the linear axis ends; before learning, the loss is 50 times as high


def draw_loss_curves(section: Section, directory: Path) -> Path | None:
    """Draw the training losses of a section's runs and the memoryless baseline, on a logarithmic and a linear axis.

    The figure is saved in the directory as loss_curves.png and loss_curves.pdf.

    Returns:
        The path of the PNG file, or None if no run has logged a loss yet.
    """
    panels = make_panels([section])
    if not any(has_loss(panel.records) for panel in panels):
        return None
    with style():
        figure, options = loss_curves(panels)
        for suffix in (".pdf", ".png"):
            path = directory / f"{NAME}{suffix}"
            save(figure, path, section.title, describe(figure, panels, options))
    return path


def has_loss(records: Sequence[RunRecord], above: float | None = None) -> bool:
    """Return whether runs have logged a finite training loss, or one above a bound."""
    curves = [record.curves[METRIC] for record in records if METRIC in record.curves]
    return any(above is None or value > above for curve in curves for value in curve.values)


def loss_curves(panels: Sequence[Panel]) -> tuple[Figure, Options]:
    """Return the figure of training losses, with two axes for each panel, and its options."""
    positive = any(has_loss(panel.records, above=0) for panel in panels)
    options = Options(y=METRIC, log="y" if positive else "", width="page")
    pairs = []
    for panel in panels:
        cut = f"linear, cut off at {LINEAR_LIMIT} × the baseline" if baselines(panel.records, METRIC) else "linear"
        for title in ("logarithmic" if positive else "linear", cut):
            pairs.append(Panel(", ".join(filter(None, (panel.title, title))), panel.series))
    figure = draw_curves(pairs, options, share=False)
    for panel, axes in zip(panels, figure.axes[1::2], strict=True):
        found = baselines(panel.records, METRIC)
        axes.set_yscale("linear")
        if found:
            axes.set_ylim(0, LINEAR_LIMIT * max(found))
    finish(figure.axes[1::2], integer_x=True)
    for axes in figure.axes:
        place_markers(axes)
    return figure, options
