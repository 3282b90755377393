"""A figure of the numbers of runs in a pandas frame, for Python and notebooks. Imports no torch."""

import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError, UserError
from gyral.core.measures import Measure
from gyral.plotting.layout import fits_log
from gyral.plotting.sizes import SUFFIXES, WIDTHS
from gyral.plotting.style import cell_styles, style, without_formulas
from gyral.plotting.style import save as save_figure
from gyral.reports.plots.lines import draw_line, option_name
from gyral.reports.plots.options import LOGARITHMIC, Options
from gyral.reports.plots.panels import Line, Panel, Series, draw_panels, legend_of
from gyral.reports.plots.results import bars_of

if TYPE_CHECKING:
    import pandas

LOGGED = ("test/loss", "test/baseline", "test/loss_ratio")  # by every run: what a plot shows if there is nothing else


def plot(
    runs: "pandas.DataFrame",
    x: str | None = None,
    y: str | None = None,
    *,
    log: str | None = None,
    width: str = "column",
    save: str | PathLike[str] | None = None,
) -> Figure:
    """Return a Matplotlib figure of the numbers that `gyral.list_runs` has returned.

    With `x`, each row is a line over the numbers in that column, the mean over seeds with a band of the standard
    deviation; otherwise, each row is a bar with its mean and its standard deviation, as `gyral report plot=bars` draws
    it. The lines of the frame can be chosen before: `runs[runs.task == "recall"]`.

        runs = gyral.list_runs("outputs/sweep", options=["optimizer.lr"])
        gyral.plot(runs, x="optimizer.lr", save="rates.pdf")

    Args:
        runs: a frame with the columns of `gyral.list_runs`.
        x: a column of numbers: an option that `gyral.list_runs` was asked for, or "column".
        y: a metric, such as "test/accuracy". None: the first one that is not a loss.
        log: the logarithmic axes, "x", "y", "xy" or "none". None: x if its numbers are positive and differ by a
            factor of ten.
        width: "column" (3.25 in) or "page" (6.75 in) of a page with two columns.
        save: a file to write, with the suffix .pdf, .svg or .png.

    Raises:
        OptionError: an argument is not allowed.
        UserError: the frame has no number of the metric, or runs of several tasks.
    """
    check_choice("width", width, tuple(WIDTHS))
    if log is not None:
        check_choice("log", log, LOGARITHMIC)
    if save is not None and Path(save).suffix not in SUFFIXES:
        raise OptionError("save", save, f"must end in one of {', '.join(SUFFIXES)}")
    lines, y = _numbers(runs, y)
    lines = lines.assign(_place=0.0) if x is None else _with_places(lines, x)
    if log is None:
        log = "x" if fits_log(lines["_place"].to_numpy(dtype=float)) else "none"
    names = [_row_name(*values, x) for values in zip(lines["row"], lines["column"], strict=True)]
    rows = {name: lines[[own == name for own in names]] for name in dict.fromkeys(names)}
    looks = cell_styles([str(own.cell.iloc[0]) for own in rows.values()])
    series = [
        Series(
            without_formulas(name),
            {**look, "gid": "row"},
            lines=[
                Line(np.array([place]), np.array([value]))
                for place, value in zip(own["_place"], own.value, strict=True)
            ],
        )
        for (name, own), look in zip(rows.items(), looks, strict=True)
    ]
    name, unit = y.rpartition("/")[2], str(lines.unit.iloc[0])
    measure = Measure(name, name.replace("_", " "), unit, digits=1 if unit == "%" else 4)
    panel = Panel("", series, y, measure, option_name(x or ""))
    options = Options(log=log, width=width)
    with style():
        figure = (
            bars_of([panel], options) if x is None else draw_panels([panel], legend_of([panel]), draw_line, options)
        )
        if save is not None:
            save_figure(figure, Path(save), y)
    return figure


def _numbers(runs: "pandas.DataFrame", y: str | None) -> tuple["pandas.DataFrame", str]:
    """Return the lines of a frame that have a metric, and its name."""
    metrics = [str(name) for name in dict.fromkeys(runs.metric) if isinstance(name, str)]
    found = [name for name in metrics if name.startswith("test/")]
    chosen = y or next((name for name in found if name not in LOGGED), next(iter(found), None))
    if chosen is None:
        raise UserError("runs: no run is DONE")
    if chosen not in metrics:
        raise OptionError("y", chosen, f"must be one of {', '.join(metrics)}")
    lines = runs[(runs.metric == chosen) & runs.value.notna()]
    tasks = [*dict.fromkeys(lines.task)]
    if len(tasks) > 1:
        raise UserError(f"runs: are of the tasks {', '.join(tasks)}; choose one: runs[runs.task == {tasks[0]!r}]")
    return lines, chosen


def _with_places(lines: "pandas.DataFrame", x: str) -> "pandas.DataFrame":
    """Return the lines with the numbers of a column as the column `_place`."""
    import pandas

    if x not in lines:
        raise OptionError("x", x, f"is not a column of the runs; gyral.list_runs(…, options=[{x!r}]) adds an option")
    places = pandas.to_numeric(lines[x], errors="coerce")
    if places.isna().any():
        raise OptionError("x", x, f"must have numbers, not {lines[x][places.isna()].iloc[0]!r}")
    return lines.assign(_place=places)


def _row_name(row: str, column: str, x: str | None) -> str:
    """Return the name of a row with its column, without the option on the x axis."""
    if x and x != "column":
        row = re.sub(rf"(, | |^)({re.escape(x)}=|{re.escape(option_name(x))} = )[^,]*", "", row).strip(" ,") or row
    return f"{row}, {column}" if column and x != "column" else row
