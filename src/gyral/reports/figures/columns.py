"""The measure of a sweep over the values of its column, such as learning rates."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gyral.core.errors import OptionError
from gyral.reports.catalogue import Row, Sweep, columns_of, in_column
from gyral.reports.figures.groups import draw_row
from gyral.reports.figures.layout import finish, label_outer, make_grid, metric_label, set_limits
from gyral.reports.figures.options import Options
from gyral.reports.figures.panels import without_formulas
from gyral.reports.figures.style import add_legend, line_style
from gyral.reports.tables.sections import Section
from gyral.runs.names import describe_option


def draw_columns(sections: Sequence[Section], options: Options) -> Figure:
    """Draw the measure of each row over the numbers in the columns of its sweep, with a panel for each sweep.

    A line is the mean over seeds with a band, or with seeds=all there is a line for each seed.

    Raises:
        OptionError: no sweep has columns that are numbers.
    """
    shown = [section for section in sections if section.sweep and _numbers(section.sweep, section.rows)]
    if not shown:
        raise OptionError("plot", "columns", "needs a sweep whose column has numbers, such as learning rates")
    figure, axes = make_grid(len(shown), options.width, share_x=False, share_y=False)
    handles: dict[str, Line2D] = {}
    for one, section in zip(axes, shown, strict=True):
        if len(shown) > 1:
            one.set_title(without_formulas(section.title))
        handles |= _draw_section(one, section, options)
    units = [describe_option(section.sweep.column or "", "").removesuffix(" = ") for section in shown if section.sweep]
    label_outer(axes, units, [metric_label(f"test/{section.measure}", section.records) for section in shown])
    add_legend(figure, list(handles.values()), [without_formulas(label) for label in handles])
    finish(axes, integer_x=False)
    return figure


def _numbers(sweep: Sweep, rows: list[Row]) -> dict[str, float]:
    """Return the columns that are numbers, in increasing order."""
    found: dict[str, float] = {}
    for column in columns_of(sweep, rows):
        try:
            found[column] = float(column)
        except ValueError:
            continue
    return dict(sorted(found.items(), key=lambda pair: pair[1]))


def _draw_section(axes: Axes, section: Section, options: Options) -> dict[str, Line2D]:
    """Draw the rows of a section, and return the handles of a legend by their labels."""
    assert section.sweep is not None
    numbers, measure = _numbers(section.sweep, section.rows), section.sweep.main
    x = np.array([*numbers.values()])
    handles: dict[str, Line2D] = {}
    reach: list[float] = []
    for index, (row, label) in enumerate(zip(section.rows, section.labels, strict=True)):
        seeds = sorted({record.seed for record in row.records})
        values = np.full((len(seeds), len(x)), np.nan)
        for place, column in enumerate(numbers):
            for record in in_column(section.sweep, row, column):
                value = measure.value(record.results)
                values[seeds.index(record.seed), place] = np.nan if value is None else value
        measured = np.isfinite(values).any(axis=0)
        if not measured.any():
            continue
        look = line_style(index)
        reach += draw_row(axes, x[measured], values[:, measured], look, options)
        handles[label.replace("\n", ", ")] = Line2D([], [], **look)
    set_limits(axes, "x", x, log="x" in options.log, bounds=None)
    bounds = (0.0, 100.0) if measure.unit == "%" else None
    set_limits(axes, "y", np.array(reach), log="y" in options.log, bounds=bounds)
    return handles
