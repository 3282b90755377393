"""Bits per character of all cells at equal parameters, and a figure of them over the time of a step, from records."""

from functools import cache
from itertools import product
from statistics import fmean
from typing import Any

import measured
import numpy as np
import speeds
from hydra.utils import get_class
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import Bbox
from overview import family_of

from gyral.config.tables import PROTOCOL
from gyral.plotting.layout import finish, set_limits
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS, MARKERS, add_legend
from gyral.reports.catalogue import load
from gyral.reports.frame import Frame
from gyral.reports.measures import with_measures
from gyral.reports.plots.solved import TINY, values_of
from gyral.reports.rows import rows_of

ROWS = "atlas_small"  # the table whose rows are those of the report; others extend it
LANGUAGE = "language_small"
FILE = "../assets/language.png"
TICKS = (0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50)  # of the time of a step
PLACES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))  # of a label beside its point
DISTANCES = (3.5, 10, 18, 26)  # of a label from its point, in points; a line joins those that are not close
LINE = {"arrowstyle": "-", "color": "#808080", "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}


@cache
def frame_of(table: str) -> Frame:
    """Return the frame of a table with its records, of which there may be none."""
    sweep = load(table)
    mine = [record for record in measured.records() if sweep.has(record)]
    sweep = with_measures(sweep, mine)
    return Frame(sweep.title, [row for row in rows_of(sweep, mine) if not row.setting], sweep)


def name_of(table: str, experiment: str) -> str:
    """Return the name of a row in the file of its table."""
    return experiment.removeprefix(load(table).protocol.removesuffix(PROTOCOL))


@cache
def labels() -> dict[str, str]:
    """Return the printed names of the rows, by their names."""
    return {name_of(ROWS, experiment): paper["row"] for experiment, paper in load(ROWS).papers.items()}


@cache
def bits() -> dict[str, list[float]]:
    """Return the bits per character of the seeds of each row that has some."""
    frame = frame_of(LANGUAGE)
    found = {name_of(LANGUAGE, row.experiment): values_of(frame, row.records, frame.measure, "") for row in frame.rows}
    return {name: values for name, values in found.items() if values}


@cache
def points() -> dict[str, tuple[float, float]]:
    """Return the time of a training step and the mean bits per character, of rows that have both."""
    ratios = speeds.step_ratios(LANGUAGE)
    return {name: (ratios[name], fmean(values)) for name, values in bits().items() if name in ratios}


def picture() -> str:
    """Return the figure of bits per character over time as Markdown, or what it lacks."""
    if not points():
        return "The figure of bits over the time of a step needs rows with a record of both: there is none yet."
    left = len(labels()) - len(points())
    lacking = (
        f" {left} of {len(labels())} rows {'lacks' if left == 1 else 'lack'} one of the two numbers." if left else ""
    )
    return (
        f"[![Bits per character over the time of a training step]({FILE})]({FILE})\n\n"
        "*Left is faster, low is better: means over seeds, and the time of a training step relative to `torch.nn.GRU`."
        f" No row is both faster and better than one on the line.*{lacking}"
    )


def is_drawn() -> bool:
    """Return whether there is a point."""
    return bool(points())


def draw() -> Figure:
    """Draw the bits per character over the time of a step; colors show how cells are computed over a sequence."""
    kinds: dict[str, list[str]] = {}
    for row in frame_of(LANGUAGE).rows:
        if (name := name_of(LANGUAGE, row.experiment)) in points():
            target = get_class(row.records[0].config["model"]["cell"]["_target_"])
            kinds.setdefault(family_of(target).over_time, []).append(name)
    figure = Figure((WIDTHS["page"], 5.2), layout=ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03))
    axes = figure.subplots()
    axes.grid()
    handles = {}
    for index, kind in enumerate(sorted(kinds)):
        places = [points()[name] for name in kinds[kind]]
        look: Any = {"color": COLORS[index], "marker": MARKERS[index], "linestyle": ""}
        [handles[kind]] = axes.plot(*zip(*places, strict=True), **look)
    best: list[tuple[float, float]] = []
    for place in sorted(points().values()):
        if not best or place[1] < best[-1][1]:
            best.append(place)
    axes.plot(*zip(*best, strict=True), color="#b0b0b0", linewidth=0.8, drawstyle="steps-post", zorder=1)
    x, y = (np.array(own) for own in zip(*points().values(), strict=True))
    set_limits(axes, "x", x, log=True, bounds=None)
    set_limits(axes, "y", y, log=False, bounds=None)
    axes.set(xlabel="time of a training step, × torch.nn.GRU", ylabel="bits per character on test")
    add_legend(figure, [*handles.values()], [*handles])
    finish([axes], integer_x=False)
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    _label_points(axes, {labels()[name]: place for name, place in points().items()})
    return figure


def _label_points(axes: Axes, places: dict[str, tuple[float, float]]) -> None:
    """Write names beside points, each as close as it covers the least of points and of earlier names."""
    figure: Any = axes.figure
    figure.draw_without_rendering()
    unit = figure.dpi / 72
    centers = [axes.transData.transform(place) for place in places.values()]
    taken = [Bbox([center - 2 * unit, center + 2 * unit]) for center in centers]
    frame = axes.get_window_extent()
    for name, place in sorted(places.items(), key=lambda item: item[1]):
        tried = []
        for distance, (right, up) in product(DISTANCES, PLACES):
            text = axes.annotate(
                name,
                place,
                (distance * right, distance * up),
                textcoords="offset points",
                fontsize=TINY,
                ha={1: "left", 0: "center", -1: "right"}[right],
                va={1: "bottom", 0: "center", -1: "top"}[up],
            )
            box = text.get_window_extent()
            covered = sum(_area(Bbox.intersection(box, other)) for other in taken)
            outside = _area(box) - _area(Bbox.intersection(box, frame))
            tried.append((covered + 2 * outside, len(tried), box, text))
        (*_, box, text), *others = sorted(tried, key=lambda one: one[:2])
        for *_, other in others:
            other.remove()
        if max(map(abs, text.xyann)) > DISTANCES[0]:
            axes.annotate("", place, text.xyann, textcoords="offset points", arrowprops=LINE)
        taken.append(box)


def _area(box: Bbox | None) -> float:
    return 0.0 if box is None else float(box.width * box.height)
