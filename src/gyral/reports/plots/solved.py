"""Plots of the layout "solved": a heat map of rows and columns, and accuracies over the length. Imports no torch."""

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from gyral.core.errors import OptionError
from gyral.plotting.layout import label_outer, make_grid, set_limits
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import add_legend, cell_styles, without_formulas
from gyral.reports.catalogue import Sweep
from gyral.reports.numbers import Numbers
from gyral.reports.plots.options import Options
from gyral.reports.rows import Row, columns_of, in_column
from gyral.reports.tables.sections import Section
from gyral.reports.tables.solved_table import FACTORS, has_lengths, solved_count
from gyral.runs.run_record import RunRecord

ROW = 0.128  # inches of a row of the heat map
TINY = 5.2  # points, of its numbers
SHADES = LinearSegmentedColormap.from_list("shades", ["#ffffff", "#cfe3f1", "#7fb5d8", "#2f7fb8", "#0b4a7a"])
DARK = 0.55  # the shade from which on numbers are white
NOT_RUN: dict[str, Any] = {"facecolor": "#eeeeee", "hatch": "////", "edgecolor": "#bdbdbd", "linewidth": 0}


def draw_heatmap(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the median of each row and column as a color and a number, for the main measure and the last further one.

    Numbers are those of the table; colors begin at chance. A number is bold if at least half of the runs are solved.
    Rows are in the order of the columns that they solve.

    Raises:
        OptionError: the table has another layout.
    """
    sweep, rows, numbers = _solved_section(sections, options)
    columns = columns_of(sweep, rows)
    measures = [sweep.main, *(sweep.measures[name] for name in sweep.also[-1:])]
    values = {
        (place, column, measure.name): [
            value
            for _, value in numbers.of(in_column(sweep, row, column), f"test/{measure.name}", column)
            if value is not None
        ]
        for place, row in enumerate(rows)
        for column in columns
        for measure in measures
    }

    def rank(place: int) -> tuple[float, ...]:
        of_row = [values[place, column, measure.name] for measure in measures for column in columns]
        solved = sum(2 * solved_count(sweep, own) >= len(own) > 0 for own in of_row[: len(columns)])
        return (-solved, -sum(median(own) for own in of_row if own))

    order = [
        place
        for place in sorted(range(len(rows)), key=rank)
        if any(values[place, c, measures[0].name] for c in columns)
    ]
    inches = WIDTHS[options.width]
    figure = Figure(figsize=(inches, ROW * len(order) + 0.75), layout=ConstrainedLayoutEngine(w_pad=0.01, h_pad=0.02))
    grid = figure.subplots(1, len(measures), sharey=True, squeeze=False)
    for axes, measure in zip(grid.flat, measures, strict=True):
        axes.set_title(measure.label.replace(" at ", "\nat ") + f" ({measure.unit})", fontsize=6.5)
        axes.set_xticks(
            range(len(columns)), [sweep.head(column).replace("_", ", ") for column in columns], fontsize=TINY
        )
        axes.set_yticks(range(len(order)), [without_formulas(rows[place].name) for place in order], fontsize=TINY)
        axes.tick_params(length=0, pad=1.5)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        for y, place in enumerate(order):
            for x, column in enumerate(columns):
                floor = _floor(in_column(sweep, rows[place], column), measure.name)
                _draw_cell(axes, x, y, values[place, column, measure.name], floor, sweep)
    figure.legend(handles=[Patch(label="not run", **NOT_RUN)], loc="outside lower right", fontsize=TINY)
    return figure


def _floor(records: Sequence[RunRecord], measure: str) -> float:
    """Return the value of a measure that a predictor without memory has, 0 if the runs do not say."""
    found = [one for record in records[:1] for one in record.measures if one.floor_of == measure]
    values = [one.value({f"test/{one.name}": records[0].metrics.get(f"test/{one.name}", 0.0)}) for one in found]
    return values[0] or 0.0 if values else 0.0


def _draw_cell(axes: Axes, x: int, y: int, values: list[float], floor: float, sweep: Sweep) -> None:
    if not values:
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **NOT_RUN))
        return
    value = median(values)
    shade = max(value - floor, 0.0) / (100 - floor)
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=SHADES(shade), edgecolor="white", linewidth=0.6))
    is_solved = 2 * solved_count(sweep, values) >= len(values)
    axes.text(
        x,
        y,
        f"{value:.0f}",
        ha="center",
        va="center_baseline",
        fontsize=TINY,
        color="white" if shade >= DARK else "black",
        fontweight="bold" if is_solved else "normal",
        gid="number",
    )


def draw_lengths(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the medians of the main measure over the length of the test, of rows that solve the column at one length.

    Raises:
        OptionError: the table has another layout, or no row solves a column.
    """
    sweep, rows, numbers = _solved_section(sections, options)
    measure = sweep.main
    panels: dict[str, dict[int, tuple[list[int], list[float]]]] = {}
    for column in columns_of(sweep, rows):
        for place, row in enumerate(rows):
            line: tuple[list[int], list[float]] = ([], [])
            records = in_column(sweep, row, column)
            for factor in FACTORS if has_lengths(records, measure) else ():
                name = measure.name if factor == 1 else f"{measure.name}_{factor}x"
                values = [value for _, value in numbers.of(records, f"test/{name}", column) if value is not None]
                if values:
                    line[0].append(factor * records[0].config["task"]["length"])
                    line[1].append(median(values))
            if line[1] and line[1][0] >= sweep.solved:
                panels.setdefault(column, {})[place] = line
    if not panels:
        reason = f"needs tests at several lengths, and a row whose median is at least {sweep.solved:g} %"
        raise OptionError("plot", options.plot, reason)
    shown = sorted({place for own in panels.values() for place in own})
    looks = dict(zip(shown, cell_styles([rows[place].records[0].cell for place in shown]), strict=True))
    figure, grid = make_grid(len(panels), options.width, share_x=True, share_y=True)
    for axes, (column, lines) in zip(grid, panels.items(), strict=True):
        axes.set_title(sweep.head(column).replace("_", ", "))
        axes.set_xscale("log", base=2)
        for place, (x, y) in lines.items():
            axes.plot(x, y, **looks[place])
        ticks = sorted({length for x, _ in lines.values() for length in x})
        axes.set_xticks(ticks, [f"{tick}" for tick in ticks])
        axes.minorticks_off()
        set_limits(axes, "y", np.array([0.0, 100.0]), log=False, bounds=(0.0, 100.0))
    label_outer(grid, ["length"] * len(grid), [f"{measure.label} ({measure.unit})"] * len(grid))
    handles = [Line2D([], [], **looks[place]) for place in shown]
    add_legend(figure, handles, [without_formulas(rows[place].name) for place in shown])
    return figure


def _solved_section(sections: Sequence[Section], options: Options) -> tuple[Sweep, list[Row], Numbers]:
    found = [(section.sweep, section.rows) for section in sections if section.sweep]
    for sweep, rows in found:
        if sweep.layout == "solved":
            return sweep, rows, Numbers(rows, sweep)
    raise OptionError("plot", options.plot, "needs runs of a table with the layout solved, such as sweep=atlas_small")
