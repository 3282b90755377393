"""The measures of tasks, and how reports print them: `Measure`, `Remark`, and the measures that several tasks share."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NATS = "nats"
SPLITS = ("train", "val", "test")  # names of the splits of a data set, and the starts of those of their results
LARGEST = 1e100  # of a metric; squares of greater numbers are not numbers


@dataclass(frozen=True)
class Measure:
    """One measure of a model on a split.

    Attributes:
        name: its name in metrics: "accuracy" of test/accuracy.
        label: its name in tables and figures.
        unit: its unit as printed, empty if it has none.
        scale: the factor between a metric and the printed number.
        digits: decimals of a printed mean.
        higher_is_better: whether a greater number is better.
        at_end: whether it is printed at the end of a run alone, not in the tables of reports.
        floor_of: the name of a measure for which this one is the score of a predictor that ignores the inputs, or "".
            Tables and charts of that measure show it.
    """

    name: str
    label: str
    unit: str = ""
    scale: float = 1.0
    digits: int = 2
    higher_is_better: bool = True
    at_end: bool = False
    floor_of: str = ""

    @property
    def title(self) -> str:
        """The label with the unit: "accuracy in %"."""
        return f"{self.label} in {self.unit}" if self.unit else self.label

    def value(self, results: Mapping[str, float] | None, split: str = "test") -> float | None:
        """Return the measure in the metrics of a run as it is printed, or None if they do not contain it."""
        found = (results or {}).get(f"{split}/{self.name}")
        return None if found is None else self.scale * found


@dataclass(frozen=True)
class Remark:
    """A remark on the numbers of a run that are from other data than its configuration names.

    Attributes:
        name: the metric that is not zero if the remark applies: "substitute" of test/substitute.
        mark: the mark of a number in a table.
        footnote: the meaning of the mark.
        data: the description of the data at the end of a run, empty if the end of a run does not mention them.
    """

    name: str
    mark: str
    footnote: str
    data: str = ""


def is_number(value: float) -> bool:
    """Return whether a metric is a number with which statistics can calculate."""
    return abs(value) <= LARGEST


def percentage(name: str, label: str, digits: int = 1, **options: bool | str) -> Measure:
    """Return a measure that is logged as a share and printed in %.

    Args:
        name, label, digits: see `Measure`.
        **options: further attributes of `Measure`.
    """
    return Measure(name, label, "%", 100, digits, **options)  # type: ignore[arg-type]


BITS = Measure("bits", "bits per symbol", digits=3, higher_is_better=False)
ACCURACY = percentage("accuracy", "accuracy")
PERPLEXITY = Measure("perplexity", "perplexity", digits=1, higher_is_better=False)
MSE = Measure("mse", "mean squared error", digits=4, higher_is_better=False)
MAE = Measure("mae", "mean absolute error", digits=4, higher_is_better=False)
R2 = Measure("r2", "R²", digits=3)
COARSE = percentage("coarse", "right answers")
FINE = percentage("fine", "right symbols")
WRONG_BITS = percentage("wrong_bits", "wrong bits", 2, higher_is_better=False)
SEQUENCE_ACCURACY = percentage("sequence_accuracy", "sequences all correct", at_end=True)
# Metrics of the objectives in `gyral.tasks.objective`, in the order of preference.
OF_OBJECTIVES = (ACCURACY, MSE, MAE, R2, COARSE, FINE, WRONG_BITS, SEQUENCE_ACCURACY)

SUBSTITUTE = Remark(
    "substitute",
    "†",
    "on a SUBSTITUTE for the paper's data, so that no published value compares with it",
    "a SUBSTITUTE, with which no published value compares",
)


def percent(share: float, digits: int = 0) -> str:
    """Return a share as all texts print it: "28 %" of 0.284."""
    return f"{100 * share:.{digits}f} %"


def perplexity_of(loss: float) -> float:
    """Return the perplexity for a loss in nats, infinite where no number is large enough (above 709 nats)."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def measure_of(name: str, measures: Iterable[Measure]) -> Measure | None:
    """Return the measure of a metric, also of a category of examples, such as accuracy_first_pair; None without one."""
    found = [measure for measure in measures if name == measure.name or name.startswith(f"{measure.name}_")]
    return max(found, key=lambda measure: len(measure.name), default=None)


def printed(name: str, value: float, measures: Iterable[Measure]) -> str:
    """Return a metric as tables, lines and figures print it: "28.4 %" of test/accuracy = 0.284.

    Args:
        name: the name of the metric, also of a category of examples, such as test/accuracy_7_operators.
        value: its value as it is logged.
        measures: the measures of the task; a metric without one, such as a loss, has four significant digits.
    """
    measure = measure_of(name.rpartition("/")[2], measures)
    if measure is None:
        return f"{value:.4g}"
    return f"{measure.scale * value:.{measure.digits}f} {measure.unit}".rstrip()


def loss_unit(metrics: Iterable[str]) -> str:
    """Return the unit of a run's loss: "nats", or "mean squared error" for regression.

    Args:
        metrics: names of the metrics of the run, such as test/loss and test/mse.
    """
    is_regression = any(name.rpartition("/")[2] == MSE.name for name in metrics)
    return MSE.label if is_regression else NATS


def loss_measure(metrics: Iterable[str]) -> Measure:
    """Return the measure of the loss of runs with these metrics."""
    return Measure("loss", f"loss in {loss_unit(metrics)}", digits=4, higher_is_better=False)


def logged(measures: Iterable[Measure], metrics: Iterable[str], split: str = "test") -> list[Measure]:
    """Return the measures of tables that are among the metrics of a split, in the order of preference."""
    names = set(metrics)
    return [measure for measure in measures if not measure.at_end and f"{split}/{measure.name}" in names]


def main_measure(measures: Iterable[Measure], metrics: Iterable[str], split: str = "test") -> Measure:
    """Return the measure by which runs are compared: the first one that they log, else the loss.

    Args:
        measures: the measures of the task, in the order of preference.
        metrics: names of the metrics of the runs.
        split: the split whose metrics count.
    """
    names = list(metrics)
    return next(iter(logged(measures, names, split)), loss_measure(names))
