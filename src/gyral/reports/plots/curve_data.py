"""Curves of runs and their mean over seeds, read from metrics.csv with all of its points. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gyral.core.errors import OptionError
from gyral.runs.directory import METRICS
from gyral.runs.metrics_file import logged_metrics, read_curves
from gyral.runs.run_record import RunRecord

SECONDS, TOKENS_A_SECOND = "train/seconds_a_step", "train/tokens_a_second"


@dataclass(frozen=True)
class Line:
    """A metric of one run over training.

    Attributes:
        steps: (n,) numbers of optimizer steps, in increasing order.
        x: (n,) the same places on the x axis.
        y: (n,) finite values, as printed.
    """

    steps: np.ndarray
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Mean:
    """The mean of lines at the steps that all of them have reached.

    Attributes:
        x: (n,) mean places on the x axis.
        y: (n,) means.
        deviation: (n,) sample standard deviations, 0 for a single line.
        low, high: (n,) smallest and largest values.
        rest: the parts of longer lines after the end of the shortest one.
    """

    x: np.ndarray
    y: np.ndarray
    deviation: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rest: list[Line]


def metrics_of(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of the metrics that runs have logged over training."""
    names: dict[str, None] = {}
    for record in records:
        found = logged_metrics(Path(record.place)) if _has_file(record) else list(record.curves)
        names |= dict.fromkeys(name for name in found if not name.startswith("test/"))
    return sorted(names)


def read_line(record: RunRecord, metric: str, axis: str) -> Line | None:
    """Return a metric of a run over training, scaled as it is printed, or None if the run has not logged it.

    Tokens and time are sums over the intervals at which the run logged its speed; validations are not included. Curves
    of Weights & Biases have the points that its server samples.

    Raises:
        OptionError: The axis is tokens or time, and the run has not logged its speed.
    """
    if _has_file(record):
        names = (metric,) if axis == "step" else (metric, SECONDS, TOKENS_A_SECOND)
        curves, _ = read_curves(Path(record.place), names)
    else:
        curve = record.curves.get(metric)
        curves = {metric: (curve.steps, curve.values) if curve else ([], [])}
    steps, values = (np.array(numbers, dtype=float) for numbers in curves[metric])
    order = np.argsort(steps, kind="stable")
    order = order[np.isfinite(values[order])]
    steps, values = steps[order], values[order] * scale_of(metric, record)
    if not len(steps):
        return None
    return Line(steps, steps if axis == "step" else _place(record, steps, curves, axis), values)


def _has_file(record: RunRecord) -> bool:
    return (Path(record.place) / METRICS).is_file()


def scale_of(metric: str, record: RunRecord) -> float:
    """Return the factor between a metric of a run and the printed number."""
    name = metric.rpartition("/")[2]
    return next((measure.scale for measure in record.measures if measure.name == name), 1.0)


def _place(
    record: RunRecord, steps: np.ndarray, curves: dict[str, tuple[list[int], list[float]]], axis: str
) -> np.ndarray:
    """Return the tokens or seconds of training after each number of steps."""
    logged, seconds = (np.array(numbers, dtype=float) for numbers in curves.get(SECONDS, ([], [])))
    speeds = np.array(curves.get(TOKENS_A_SECOND, ([], []))[1])
    if not len(logged):
        raise OptionError("x", axis, f"{record.place} has no {SECONDS}, which callbacks.statistics logs; use x=step")
    if axis != "time" and not len(speeds):
        raise OptionError("x", axis, f"{record.place} is of a task without sequences, which has no tokens; use x=step")
    per_step = seconds if axis == "time" else seconds * speeds
    sums = np.cumsum(np.diff(logged, prepend=0) * per_step)
    beyond = np.maximum(steps - logged[-1], 0) * per_step[-1]  # after the last logged interval
    return np.interp(steps, np.append(0, logged), np.append(0, sums)) + beyond


def average(lines: Sequence[Line]) -> Mean:
    """Return the mean of the lines of a row, one per seed.

    The lines are evaluated at every step that one of them has, between the last of their first steps and the first of
    their last steps, by linear interpolation where a line has no point.
    """
    first, last = max(line.steps[0] for line in lines), min(line.steps[-1] for line in lines)
    steps = np.unique(np.concatenate([line.steps for line in lines]))
    steps = steps[(steps >= first) & (steps <= last)]
    x = np.mean([np.interp(steps, line.steps, line.x) for line in lines], axis=0)
    values = np.array([np.interp(steps, line.steps, line.y) for line in lines])
    deviation = values.std(axis=0, ddof=1) if len(lines) > 1 else np.zeros(len(steps))
    rest = [Line(line.steps[after], line.x[after], line.y[after]) for line in lines
            if (after := line.steps >= last).sum() > 1]  # fmt: skip
    return Mean(x, values.mean(axis=0), deviation, values.min(axis=0), values.max(axis=0), rest)
