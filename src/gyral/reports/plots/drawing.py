"""Plots of several runs: curves, parameters against score, bars, groups of test examples, columns. Imports no torch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from gyral.core.errors import OptionError
from gyral.plotting.style import save, style
from gyral.reports.frame import Frame
from gyral.reports.plots.curves import draw_curves, draw_losses
from gyral.reports.plots.lines import draw_columns, draw_groups
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Panel, make_panels
from gyral.reports.plots.results import draw_bars, draw_parameters
from gyral.reports.plots.solved import draw_heatmap, draw_lengths

MAX_PANELS = 24
DRAW: dict[str, Callable[[Sequence[Panel], Options], Figure]] = {
    "curves": draw_curves,
    "losses": draw_losses,
    "parameters": draw_parameters,
    "bars": draw_bars,
}
DRAW_FRAMES: dict[str, Callable[[Sequence[Frame], Options], Figure]] = {
    "groups": draw_groups,
    "columns": draw_columns,
    "heatmap": draw_heatmap,
    "lengths": draw_lengths,
}
MEDIANS = {  # what the plots of the layout "solved" show
    "heatmap": "results by row and column; bold: at least half of the seeds are solved",
    "lengths": "results by length",
}
SPREADS = {"deviation": "mean and standard deviation", "range": "mean, smallest and largest value", "all": "each"}


def plot(path: Path, where: str, frames: Sequence[Frame], options: Options) -> str:
    """Draw the runs of a report, write the figure to a file, and return a description of it.

    Args:
        path: the file, with one of `sizes.SUFFIXES`.
        where: the name or directory of the sweep, for the title in the file's metadata.
        frames: the frames of the report.
        options: what the plot shows.

    Raises:
        OptionError: The runs do not have what the options ask for, or are of too many tasks for one figure.
        OSError: The file cannot be written.
    """
    panels = make_panels(frames)
    if not panels:
        raise OptionError("sweep", where, f"has no run, which {path} could show")
    if len(panels) > MAX_PANELS and options.plot in DRAW:
        reason = f"has {len(panels)} tasks or values of task options; a figure shows at most {MAX_PANELS}"
        raise OptionError("sweep", where, f"{reason}; choose a directory with fewer")
    with style():
        figure = draw(frames, options)
        description = describe(figure, panels, options)
        save(figure, path, frames[0].title if len(frames) == 1 else where, description)
    return description


def draw(frames: Sequence[Frame], options: Options) -> Figure:
    """Draw the runs of a report; see `plot`."""
    shown: Any = make_panels(frames) if options.plot in DRAW else frames
    return (DRAW | DRAW_FRAMES)[options.plot](shown, options)


def describe(figure: Figure, panels: Sequence[Panel], options: Options) -> str:
    """Return a description of a figure, as for its caption."""
    labels = dict.fromkeys(text for axes in figure.axes for text in (axes.get_ylabel(), axes.get_xlabel()) if text)
    counts = sorted({len(series.records) for panel in panels for series in panel.series})
    if options.plot in MEDIANS:
        return f"{MEDIANS[options.plot]}; medians of {counts[0]} to {counts[-1]} seeds"
    seeds = f"{SPREADS[options.seeds]} of {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seeds"
    return f"{', '.join(labels)}; {seeds if counts[-1] > 1 else 'one run for each row'}"
