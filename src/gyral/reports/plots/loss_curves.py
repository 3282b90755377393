"""The training losses of all runs of a sweep (Fig. 4 of Dangovski et al., TACL 2019). Imports no torch."""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from gyral.core.errors import OptionError
from gyral.plotting.layout import finish, place_markers
from gyral.reports.plots.curves import baselines, draw_curves
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Panel
from gyral.runs.run_record import RunRecord

METRIC = "train/loss"
LINEAR_LIMIT = 2  # baselines at which the linear axis ends; before learning, the loss is 50 times as high


def draw_losses(panels: Sequence[Panel], options: Options) -> Figure:
    """Draw the training losses of runs and the memoryless baseline, on a logarithmic and a linear axis for each panel.

    Raises:
        OptionError: no run has logged a finite loss.
    """
    panels = [panel for panel in panels if _losses(panel.records)]
    if not panels:
        raise OptionError("plot", options.plot, "needs training losses, and no run has logged any")
    positive = any(max(_losses(panel.records)) > 0 for panel in panels)
    pairs = []
    for panel in panels:
        cut = f"linear, cut off at {LINEAR_LIMIT} × the baseline" if baselines(panel.records, METRIC) else "linear"
        for title in ("logarithmic" if positive else "linear", cut):
            pairs.append(Panel(", ".join(filter(None, (panel.title, title))), panel.series))
    figure = draw_curves(pairs, replace(options, y=METRIC, log="y" if positive else ""), share=False)
    for panel, axes in zip(panels, figure.axes[1::2], strict=True):
        found = baselines(panel.records, METRIC)
        axes.set_yscale("linear")
        if found:
            axes.set_ylim(0, LINEAR_LIMIT * max(found))
    finish(figure.axes[1::2], integer_x=True)
    for axes in figure.axes:
        place_markers(axes)
    return figure


def _losses(records: Sequence[RunRecord]) -> list[float]:
    """Return the finite training losses that runs have logged."""
    return [value for record in records if METRIC in record.curves for value in record.curves[METRIC].values]
