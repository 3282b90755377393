"""The boxes of some concepts in the plane, and an animation of their training."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from gyral.applications.boxes.callback import CORNERS, Boxes, box_row
from gyral.core.errors import OptionError, UserError
from gyral.figures.common import animate_plane, finish_plane, read_numbers
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS, DASHES
from gyral.runs.directory import Run
from gyral.training import build

SUBJECT = "boxes of concepts"
HEIGHT = 4.2  # inches
MARGIN = 0.05  # margin around the boxes, as a fraction of the plane


def draw_boxes(run: Run) -> tuple[Figure, Iterator[Figure] | None]:
    """Draw the boxes of a run, and the frames of an animation if the run has recorded them; see `boxes`."""
    return boxes(run), animate_boxes(run)


def boxes(run: Run) -> Figure:
    """Draw the boxes of the 12 concepts with the most hyponyms, with their hard edges.

    Raises:
        OptionError: the model of the run has no boxes in the plane.
    """
    task, step = build.load_trained(run, "best")
    try:
        Boxes().check_task(task)
    except UserError:
        reason = "the figure needs boxes in the plane: model=smoothed_box with model.dimension=2"
        raise OptionError("run", run.directory, reason) from None
    row = box_row(task)
    names, corners = _concepts(list(row)), np.array(list(row.values())).reshape(-1, len(CORNERS))
    figure, axes = _make_figure()
    _draw(axes, names, corners)
    _set_limits(axes, corners)
    finish_plane(figure, axes, run, f"{SUBJECT} at step {step:,}")
    return figure


def animate_boxes(run: Run) -> Iterator[Figure] | None:
    """Return the frames of the animation: the boxes after each validation, as recorded by the callback `Boxes`.

    All frames show the same part of the plane.

    Returns:
        The figure, once for each frame; None if the run has not recorded its boxes.
    """
    if not (run.directory / Boxes.FILE).is_file():
        return None
    steps, names, recorded = read_boxes(run)
    figure, axes = _make_figure()

    def draw(place: int) -> None:
        _draw(axes, names, recorded[place])
        _set_limits(axes, recorded)

    return animate_plane(run, figure, axes, steps, draw, SUBJECT)


def read_boxes(run: Run) -> tuple[list[int], list[str], np.ndarray]:
    """Read boxes.csv of a run.

    Returns:
        The number of optimizer steps at each of V validations, the names of the concepts, and the sides of their boxes
        (V, concepts, 4).

    Raises:
        OptionError: the file does not exist or contains no validation.
    """
    header, values = read_numbers(run.directory, Boxes.FILE, "boxes")
    names = _concepts(header[1:])
    return [int(step) + 1 for step in values[:, 0]], names, values[:, 1:].reshape(-1, len(names), len(CORNERS))


def _concepts(columns: Sequence[str]) -> list[str]:
    return [column.rpartition("/")[0] for column in columns[:: len(CORNERS)]]


def _make_figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTHS["column"], HEIGHT), layout="constrained")
    return figure, figure.add_subplot()


def _draw(axes: Axes, names: Sequence[str], corners: np.ndarray) -> None:
    axes.grid()
    axes.set(xlabel="first coordinate", ylabel="second coordinate")
    for place, (name, (left, bottom, right, top)) in enumerate(zip(names, corners, strict=True)):
        look = {"edgecolor": COLORS[place % len(COLORS)], "linestyle": DASHES[place % len(DASHES)], "linewidth": 1.1}
        label = name.partition(".")[0].replace("_", " ")
        axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, fill=False, label=label, **look))


def _set_limits(axes: Axes, corners: np.ndarray) -> None:
    """Show the rectangle around all boxes (…, 4) with a margin."""
    low, high = corners[..., :2].min(axis=tuple(range(corners.ndim - 1))), corners[..., 2:].reshape(-1, 2).max(axis=0)
    pad = MARGIN * (high - low)
    axes.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
