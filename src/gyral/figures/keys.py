"""Where the heads of a memory with keys in a plane read and write during one example."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from gyral.figures.common import animate_plane, finish_plane, missing_part_error, read_numbers
from gyral.figures.memory import load_trace
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS, MARKERS
from gyral.runs.directory import Run
from gyral.training.callbacks.memory_trace import MemoryTraces

SUBJECT = "keys of a validation example"
HEIGHT = 2.9  # inches
MARGIN = 0.08  # of the plane, around the keys
SMALLEST = 1e-6  # side of a square of the plane
SHOWN = (1, 99)  # percentiles of the coordinates of all validations that every frame shows


class Locations(NamedTuple):
    """The keys of an example in the plane.

    Attributes:
        reads: (T, 2), at each step.
        after: (T,) bool, the steps at which nothing may be written.
        writes: (n, 2), of the vectors that were written.
        strengths: (n,), of these vectors.
    """

    reads: np.ndarray
    after: np.ndarray
    writes: np.ndarray
    strengths: np.ndarray


def draw_keys(run: Run) -> tuple[Figure, Iterator[Figure] | None]:
    """Draw the keys of a run, and the frames of an animation if the run has recorded them; see `keys`."""
    return keys(run), animate_keys(run)


def keys(run: Run) -> Figure:
    """Draw the keys of a validation example: circles for writes, darker the stronger, and a line for reads.

    Raises:
        OptionError: The memory of the run has no keys in a plane.
    """
    task, step, trace = load_trace(run)
    if trace.keys is None:
        raise missing_part_error(run, task, "keys in a plane", "LANTMCell")
    written = trace.writable
    locations = Locations(trace.keys.read, ~written, trace.keys.write[written], trace.keys.strength[written])
    figure, axes = _make_figure()
    _draw(axes, locations, _bounds([locations], (0, 100)))
    finish_plane(figure, axes, run, f"{SUBJECT} at step {step:,}")
    return figure


def animate_keys(run: Run) -> Iterator[Figure] | None:
    """Return the frames of the animation: the keys after each validation, as recorded by the callback `MemoryTraces`.

    All frames show the same part of the plane, which has at least 98 % of the coordinates of all validations.

    Returns:
        The figure, once for each frame; None if the run has not recorded its memory.
    """
    if not (run.directory / MemoryTraces.FILE).is_file():
        return None
    steps, recorded = read_locations(run.directory)
    bounds, (figure, axes) = _bounds(recorded, SHOWN), _make_figure()
    return animate_plane(run, figure, axes, steps, lambda place: _draw(axes, recorded[place], bounds), SUBJECT)


def _make_figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTHS["column"], HEIGHT), layout="constrained")
    axes = figure.add_subplot()
    strengths = ScalarMappable(Normalize(0, 1), "Greys")
    figure.colorbar(strengths, ax=axes, label="strength of a write", aspect=30)
    return figure, axes


def _draw(axes: Axes, locations: Locations, bounds: np.ndarray) -> None:
    """Draw the keys, in a square around `bounds` with a margin."""
    axes.set_aspect("equal")
    axes.grid()
    axes.set(xlabel="first coordinate of the key", ylabel="second coordinate")
    look: Any = {"s": 34, "cmap": "Greys", "vmin": 0, "vmax": 1, "edgecolors": "black", "linewidths": 0.4}
    x, y = locations.writes.T
    axes.scatter(x, y, c=locations.strengths, label="write", **look)
    while_writing = "read while writing" if locations.after.any() else "read"
    phases = ((~locations.after, COLORS[5], while_writing), (locations.after, COLORS[1], "read afterwards"))
    for place, (phase, color, name) in enumerate(phases):
        if phase.any():
            shown = np.where(phase[:, None], locations.reads, np.nan)
            sign: Any = {"color": color, "marker": MARKERS[place], "markersize": 2.2}
            axes.plot(*shown.T, linewidth=0.8, zorder=3 + place, label=name, **sign)
    low, high = bounds
    (x, y), half = (low + high) / 2, (0.5 + MARGIN) * max(*(high - low), SMALLEST)
    axes.set(xlim=(x - half, x + half), ylim=(y - half, y + half))


def _bounds(shown: Sequence[Locations], percentiles: tuple[float, float]) -> np.ndarray:
    """Return two corners of the rectangle of the keys, (2, 2), between two percentiles of each coordinate."""
    points = np.concatenate([keys for locations in shown for keys in (locations.reads, locations.writes)])
    return np.percentile(points[np.isfinite(points).all(axis=1)], percentiles, axis=0)


def read_locations(directory: Path) -> tuple[list[int], list[Locations]]:
    """Read the keys in the file memory_trace.csv of a run.

    Returns:
        The number of optimizer steps at each validation, and the keys of each validation.

    Raises:
        OptionError: The file does not exist or holds no validation.
    """
    header, values = read_numbers(directory, MemoryTraces.FILE, "memory_trace")
    columns = {name: column for column, name in enumerate(header)}
    series: dict[str, list[int]] = {}  # for each name, the time steps
    for name in header[1:]:
        kind, _, step = name.rpartition("/")
        series.setdefault(kind, []).append(int(step))

    def take(kind: str) -> np.ndarray:
        return values[:, [columns[f"{kind}/{step}"] for step in series.get(kind, [])]]

    reads = np.stack((take("read_x"), take("read_y")), axis=-1)
    writes, strengths = np.stack((take("write_x"), take("write_y")), axis=-1), take("strength")
    after = np.ones(reads.shape[1], dtype=bool)
    after[series.get("strength", [])] = False
    recorded = [Locations(read, after, write, own) for read, write, own in zip(reads, writes, strengths, strict=True)]
    return [int(step) + 1 for step in values[:, 0]], recorded
