"""A figure of the numbers of runs in a pandas frame, for Python and notebooks. Imports no torch."""

import re
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError, UserError
from gyral.plotting.sizes import SUFFIXES, WIDTHS
from gyral.reports.plots.options import LOGARITHMIC
from gyral.runs.names import describe_option

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOGGED = ("test/loss", "test/baseline", "test/loss_ratio")  # by every run: what a plot shows if there is nothing else


def plot(
    runs: "pandas.DataFrame",
    x: str | None = None,
    y: str | None = None,
    *,
    log: str | None = None,
    width: str = "column",
    save: str | PathLike[str] | None = None,
) -> "Figure":
    """Return a Matplotlib figure of the numbers that `gyral.list_runs` has returned.

    With `x`, each row is a line over the numbers in that column, the mean over seeds with a band of the standard
    deviation; otherwise, each row is a bar. The lines of the frame can be chosen before: `runs[runs.task == "recall"]`.

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
    from gyral.plotting.layout import finish, make_grid  # now: the frame alone does without matplotlib
    from gyral.plotting.style import save as save_figure
    from gyral.plotting.style import style

    check_choice("width", width, tuple(WIDTHS))
    if log is not None:
        check_choice("log", log, LOGARITHMIC)
    if save is not None and Path(save).suffix not in SUFFIXES:
        raise OptionError("save", save, f"must end in one of {', '.join(SUFFIXES)}")
    lines, y = _numbers(runs, y)
    if x is not None:
        lines = _with_places(lines, x)
    names = [_row_name(*values, x) for values in zip(lines["row"], lines["column"], strict=True)]
    rows = {name: lines[[own == name for own in names]] for name in dict.fromkeys(names)}
    with style():
        height = 0.21 * len(rows) + 0.1 if x is None else None
        figure, [axes] = make_grid(1, width, share_x=False, share_y=False, height=height)
        if x is None:
            _draw_bars(axes, rows, y)
        else:
            _draw_lines(axes, rows, x, y, log)
        finish([axes], integer_x=False, y_is_numeric=x is not None)
        if save is not None:
            save_figure(figure, Path(save), y)
    return figure


def _draw_bars(axes: "Axes", rows: "dict[str, pandas.DataFrame]", y: str) -> None:
    """Draw a bar for the mean of each row, with its standard deviation."""
    import numpy as np

    from gyral.plotting.layout import clip_band, set_limits
    from gyral.plotting.style import cell_styles, without_formulas

    reach = [0.0]
    bounds = _bounds(_unit(rows))
    for place, (own, look) in enumerate(zip(rows.values(), cell_styles(_cells(rows)), strict=True)):
        mean, spread = own.value.mean(), _deviation(own.value)
        low, high = clip_band(np.array([mean - spread]), np.array([mean + spread]), [own.value.to_numpy()], bounds)
        axes.barh(place, mean, color=look["color"], height=0.62)
        if spread:
            axes.errorbar(mean, place, xerr=[mean - low, high - mean], ecolor="black", fmt="none", capsize=2)
        reach += [*low, *high]
    axes.set_yticks(range(len(rows)), list(map(without_formulas, rows)))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(_label(y, _unit(rows)))
    set_limits(axes, "x", np.array(reach), log=False, bounds=bounds)


def _draw_lines(axes: "Axes", rows: "dict[str, pandas.DataFrame]", x: str, y: str, log: str | None) -> None:
    """Draw the mean of each row at each place, with a band of the standard deviation, and a legend."""
    import numpy as np

    from gyral.plotting.layout import clip_band, fits_log, set_limits
    from gyral.plotting.style import add_legend, cell_styles, without_formulas

    reach: list[float] = []
    bounds = _bounds(_unit(rows))
    for (name, own), look in zip(rows.items(), cell_styles(_cells(rows)), strict=True):
        groups = own.groupby("_place").value
        places, means = groups.mean().index.to_numpy(), groups.mean().to_numpy()
        spreads = groups.apply(_deviation).to_numpy()
        axes.plot(places, means, label=without_formulas(name), **look)
        low, high = clip_band(means - spreads, means + spreads, [own.value.to_numpy()], bounds)
        if spreads.any():
            axes.fill_between(places, low, high, color=look["color"], alpha=0.2, linewidth=0)
        reach += [*low, *high]
    numbers = np.concatenate([own["_place"].to_numpy(dtype=float) for own in rows.values()])
    axes.set_xlabel(describe_option(x, "").removesuffix(" = "))
    axes.set_ylabel(_label(y, _unit(rows)))
    set_limits(axes, "x", numbers, log=fits_log(numbers) if log is None else "x" in log, bounds=None)
    set_limits(axes, "y", np.array(reach), log="y" in (log or ""), bounds=bounds)
    add_legend(cast("Figure", axes.get_figure()), *axes.get_legend_handles_labels())


def _cells(rows: "dict[str, pandas.DataFrame]") -> list[str]:
    """Return the name of the cell of each row."""
    return [str(own.cell.iloc[0]) for own in rows.values()]


def _bounds(unit: str) -> tuple[float, float] | None:
    """Return the smallest and the largest possible value of a metric with a unit."""
    return (0.0, 100.0) if unit == "%" else None


def _unit(rows: "dict[str, pandas.DataFrame]") -> str:
    return str(next(iter(rows.values())).unit.iloc[0])


def _label(y: str, unit: str) -> str:
    return y.replace("/", " ").replace("_", " ") + (f" ({unit})" if unit else "")


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
        name = describe_option(x, "").removesuffix(" = ")
        row = re.sub(rf"(, | |^)({re.escape(x)}=|{re.escape(name)} = )[^,]*", "", row).strip(" ,") or row
    return f"{row}, {column}" if column and x != "column" else row


def _deviation(values: Any) -> float:
    """Return the standard deviation of a sample; 0 of a single value."""
    return float(values.std()) if len(values) > 1 else 0.0
