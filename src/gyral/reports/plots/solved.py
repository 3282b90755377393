"""Plots of the layout "solved": a heat map of rows and columns, and accuracies over the length. Imports no torch."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch, Rectangle

from gyral.core.errors import OptionError
from gyral.plotting.layout import label_outer, make_grid, set_limits
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import add_legend, without_formulas
from gyral.reports.catalogue import Sweep
from gyral.reports.frame import Frame
from gyral.reports.plots.options import Options
from gyral.reports.plots.panels import Line, Panel, Series, legend_of, with_looks
from gyral.reports.tables.solved import FACTORS, has_lengths
from gyral.runs.run_record import RunRecord

ROW = 0.128  # inches of a row of the heat map
TINY = 5.2  # points, of its numbers
SHADES = LinearSegmentedColormap.from_list("shades", ["#ffffff", "#cfe3f1", "#7fb5d8", "#2f7fb8", "#0b4a7a"])
DARK = 0.55  # the shade from which on numbers are white
NOT_RUN: dict[str, Any] = {"facecolor": "#eeeeee", "hatch": "////", "edgecolor": "#bdbdbd", "linewidth": 0}


def draw_heatmap(frames: Sequence[Frame], options: Options) -> Figure:
    """Draw the median of each row and column as a color and a number, for the main measure and the last further one.

    Numbers are those of the table; colors begin at chance. A number is bold if at least half of the runs are solved.
    A run that has diverged is not solved and has no number; if all have, the entry is "nan".
    Rows are in the order of the columns that they solve.

    Raises:
        OptionError: the table has another layout.
    """
    frame, sweep = _solved_frame(frames, options)
    measures = [sweep.main, *(sweep.measures[name] for name in sweep.also[-1:])]
    found = []  # for each row its rank, its name, and for each measure the runs and values of each column
    for row in frame.rows:
        runs = [frame.in_column(row, column) for column in frame.columns]
        values = [[values_of(frame, own, measure.name, column) for own, column in zip(runs, frame.columns, strict=True)]
                  for measure in measures]  # fmt: skip
        solved = sum(is_mostly_solved(sweep, *both) for both in zip(runs, values[0], strict=True))
        if any(values[0]) or any(record.diverged for own in runs for record in own):
            total = sum(median(own) for of_measure in values for own in of_measure if own)
            found.append(((-solved, -total), row.name, runs, values))
    found.sort(key=lambda row: row[0])
    size = WIDTHS[options.width], ROW * len(found) + 0.75
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.02))
    grid = figure.subplots(1, len(measures), sharey=True, squeeze=False)
    heads = [sweep.head(column).replace("_", ", ") for column in frame.columns]
    for index, (axes, measure) in enumerate(zip(grid.flat, measures, strict=True)):
        axes.set_title(measure.label.replace(" at ", "\nat ") + f" ({measure.unit})", fontsize=6.5)
        axes.set_xticks(range(len(heads)), heads, fontsize=TINY)
        axes.set_yticks(range(len(found)), [without_formulas(name) for _, name, *_ in found], fontsize=TINY)
        axes.tick_params(length=0, pad=1.5)
        axes.set(xlim=(-0.5, len(heads) - 0.5), ylim=(len(found) - 0.5, -0.5))
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        for y, (_, _, runs, values) in enumerate(found):
            for x, own in enumerate(values[index]):
                if not own:
                    draw_cell(axes, x, y, "nan" if any(record.diverged for record in runs[x]) else None)
                    continue
                shade = shade_of(median(own), floor_of(runs[x], measure.name))
                draw_cell(axes, x, y, f"{median(own):.0f}", shade, bold=is_mostly_solved(sweep, runs[x], own))
    figure.legend(handles=[Patch(label="not run", **NOT_RUN)], loc="outside lower right", fontsize=TINY)
    return figure


def is_mostly_solved(sweep: Sweep, runs: Sequence[RunRecord], values: Sequence[float]) -> bool:
    """Return whether at least half of the runs that have ended are solved, given the values that they have."""
    return 2 * sweep.solved_count(values) >= sum(record.ended for record in runs) > 0


def values_of(frame: Frame, runs: Sequence[RunRecord], measure: str, column: str) -> list[float]:
    """Return the values of a measure that runs have in a column."""
    return [value for _, value in frame.of(runs, f"test/{measure}", column) if value is not None]


def floor_of(records: Sequence[RunRecord], measure: str) -> float:
    """Return the value of a measure that a predictor without memory has, 0 if the runs do not say."""
    found = [one.value(record.metrics) for record in records[:1] for one in record.measures if one.floor_of == measure]
    return found[0] or 0.0 if found else 0.0


def shade_of(value: float, floor: float) -> float:
    """Return the shade of a value in %, from 0 at the value of a predictor without memory to 1 at 100 %."""
    return max(value - floor, 0.0) / (100 - floor) if floor < 100 else 0.0  # targets of one class have a floor of 100


def draw_cell(axes: Axes, x: int, y: int, text: str | None = None, shade: float = 0.0, bold: bool = False) -> None:
    """Draw a cell of a heat map.

    Args:
        axes: the axes.
        x, y: its column and its row.
        text: its number; None: there is no run.
        shade: the shade of its color, from 0 to 1.
        bold: whether the number is bold.
    """
    if text is None:
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **NOT_RUN))
        return
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=SHADES(shade), edgecolor="white", linewidth=0.6))
    look: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": TINY, "gid": "number"}
    look["fontweight"] = "bold" if bold else "normal"
    axes.text(x, y, text, color="white" if shade >= DARK else "black", **look)


def draw_lengths(frames: Sequence[Frame], options: Options) -> Figure:
    """Draw the medians of the main measure over the length of the test, of rows that solve the column at one length.

    Raises:
        OptionError: the table has another layout, or no row solves a column.
    """
    frame, sweep = _solved_frame(frames, options)
    measure, panels = sweep.main, []
    for column in frame.columns:
        series = []
        for row in frame.rows:
            runs, medians = frame.in_column(row, column), {}
            for factor in FACTORS if has_lengths(runs, measure) else ():
                name = measure.name if factor == 1 else f"{measure.name}_{factor}x"
                if values := values_of(frame, runs, name, column):
                    medians[factor * runs[0].config["task"]["length"]] = median(values)
            if medians and next(iter(medians.values())) >= sweep.solved:
                lines = [Line(np.array([*medians]), np.array([*medians.values()]))]
                series.append(Series(without_formulas(row.name), {}, runs, lines=lines))
        panels += [Panel(sweep.head(column).replace("_", ", "), series)] if series else []
    if not panels:
        reason = f"needs tests at several lengths, and a row whose median is at least {sweep.solved:g} %"
        raise OptionError("plot", options.plot, reason)
    order = [without_formulas(row.name) for row in frame.rows]
    everything = sorted((one for panel in panels for one in panel.series), key=lambda one: order.index(one.label))
    [ordered, *panels] = with_looks([Panel("", everything), *panels])
    figure, grid = make_grid(len(panels), options.width, share_x=True, share_y=True)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(panel.title)
        axes.set_xscale("log", base=2)
        for one in panel.series:
            axes.plot(one.lines[0].x, one.lines[0].y, **one.look)
        ticks = sorted({length for one in panel.series for length in one.lines[0].x})
        axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
        axes.minorticks_off()
        set_limits(axes, "y", np.array([0.0, 100.0]), log=False, bounds=(0.0, 100.0))
    label_outer(grid, ["length"] * len(grid), [f"{measure.label} ({measure.unit})"] * len(grid))
    legend = legend_of([ordered])
    add_legend(figure, list(legend.values()), list(legend))
    return figure


def _solved_frame(frames: Sequence[Frame], options: Options) -> tuple[Frame, Sweep]:
    for frame in frames:
        if frame.sweep and frame.sweep.layout == "solved":
            return frame, frame.sweep
    raise OptionError("plot", options.plot, "needs runs of a table with the layout solved, such as sweep=atlas_small")
