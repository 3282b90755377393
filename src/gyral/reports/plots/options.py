"""The options of plots of several runs. Imports neither torch nor matplotlib."""

from dataclasses import dataclass
from typing import Any

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.plotting.sizes import WIDTHS

PLOTS = ("curves", "parameters", "bars", "groups", "columns", "losses", "heatmap", "lengths")
AXES = ("step", "tokens", "time")
LOGARITHMIC = ("x", "y", "xy", "none")
SEEDS = ("deviation", "range", "all")


@dataclass(frozen=True)
class Options:
    """Options of a plot of several runs.

    Attributes:
        plot: one of `PLOTS`.
        x: for curves one of `AXES`; for columns the key of an option whose values are numbers, or "" for the one that
            the runs vary.
        y: a metric; None for the metric that the task monitors (curves) or the main measure on the test split.
        log: the logarithmic axes, or "none"; "" for the default: none, but for columns x where it fits.
        width: one of `WIDTHS`.
        seeds: one of `SEEDS`: the band is the standard deviation, or from the smallest to the largest value; or no band
            and every run.
    """

    plot: str = "curves"
    x: str = "step"
    y: str | None = None
    log: str = ""
    width: str = "column"
    seeds: str = "deviation"

    @classmethod
    def check(cls, plot: Any, x: Any, y: Any, log: Any, seeds: Any, width: Any) -> "Options":
        """Return the options of the command line, where None stands for a default.

        Raises:
            OptionError: A value is not allowed, or not for this plot.
        """
        kind = check_choice("plot", plot or cls.plot, PLOTS)
        if x is not None and kind not in ("curves", "columns"):
            raise OptionError("x", x, f"is an option of plot=curves and plot=columns, not of plot={kind}")
        allowed = {"x": AXES, "log": LOGARITHMIC, "width": tuple(WIDTHS), "seeds": SEEDS}
        given = {"x": x if kind == "curves" else None, "log": log, "width": width, "seeds": seeds}
        chosen = {name: check_choice(name, value, allowed[name]) for name, value in given.items() if value is not None}
        if kind == "columns":
            chosen["x"] = str(x or "")
        if kind == "losses" and (y or log) is not None:
            raise OptionError("y" if y else "log", y or log, "is fixed with plot=losses")
        if kind == "bars" and log is not None:
            raise OptionError("log", log, "is not possible with plot=bars: a bar begins at 0")
        if kind != "curves" and seeds == "range":
            raise OptionError("seeds", seeds, f"must be deviation or all with plot={kind}")
        return cls(kind, y=None if y is None else str(y), **chosen)
