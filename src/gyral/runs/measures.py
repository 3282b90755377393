"""The measures that runs log on each split, and how they are printed. Imports no torch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


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
    """

    name: str
    label: str
    unit: str = ""
    scale: float = 1.0
    digits: int = 2
    higher_is_better: bool = True

    @property
    def title(self) -> str:
        """The label with the unit: "accuracy in %"."""
        return f"{self.label} in {self.unit}" if self.unit else self.label

    def value(self, results: Mapping[str, float] | None, split: str = "test") -> float | None:
        """Return the measure in the metrics of a run as it is printed, or None if they do not contain it."""
        found = (results or {}).get(f"{split}/{self.name}")
        return None if found is None else self.scale * found


def _by_name(*measures: Measure) -> dict[str, Measure]:
    return {measure.name: measure for measure in measures}


# In the order of preference: the first one that a task logs is its main measure in reports.
MEASURES = _by_name(
    Measure("bits", "bits per symbol", digits=3, higher_is_better=False),
    Measure("f1", "F1", digits=4),
    Measure("accuracy", "accuracy", "%", 100, 1),
    Measure("perplexity", "perplexity", digits=1, higher_is_better=False),
    Measure("rouge1", "ROUGE-1"),
    Measure("rouge2", "ROUGE-2"),
    Measure("rougeL", "ROUGE-L"),
    Measure("mse", "mean squared error", digits=4, higher_is_better=False),
    Measure("mae", "mean absolute error", digits=4, higher_is_better=False),
    Measure("r2", "R²", digits=3),
    Measure("kl", "Kullback-Leibler divergence", digits=4, higher_is_better=False),
    Measure("pearson", "Pearson correlation", digits=4),
    Measure("spearman", "Spearman correlation", digits=4),
    Measure("coarse", "right answers", "%", 100, 1),
    Measure("fine", "right symbols", "%", 100, 1),
    *(Measure(f"coarse_{factor}x", f"right answers at {factor}×", "%", 100, 1) for factor in (1, 2, 4, 5, 8)),
    *(Measure(f"fine_{factor}x", f"right symbols at {factor}×", "%", 100, 1) for factor in (1, 2, 4, 5, 8)),
    Measure("wrong_bits", "wrong bits", "%", 100, 2, higher_is_better=False),
    *(
        Measure(f"wrong_bits_{vectors}", f"wrong bits, {vectors} vectors", "%", 100, 2, higher_is_better=False)
        for vectors in (3, 4, 20, 30, 50, 80, 120)
    ),
    *(
        Measure(f"wrong_bits_{repeats}_repeats", f"wrong bits, {repeats} repeats", "%", 100, 2, higher_is_better=False)
        for repeats in (3, 4)
    ),
    Measure("accuracy_more_objects", "accuracy, more objects", "%", 100, 1),
    *(
        Measure(f"accuracy_{question}", f"accuracy, {question.replace('_', ' ')}", "%", 100, 1)
        for question in ("exist", "count", "query", "compare_number", "compare_attribute")
    ),
)
# Printed at the end of a run, but not in the tables of reports.
FURTHER_MEASURES = _by_name(
    Measure("average_precision", "average precision", digits=4),
    Measure("sequence_accuracy", "sequences all correct", "%", 100, 1),
    Measure("majority", "most frequent answer", "%", 100, 1),
    Measure("answerable", "answer among the candidates", "%", 100, 1),
    Measure("most_mentioned", "most mentioned candidate", "%", 100, 1),
    *(Measure(f"accuracy_{count}_operators", f"accuracy, operators: {count}", "%", 100, 1) for count in range(1, 13)),
)
NATS = "nats"


def loss_unit(metrics: Iterable[str]) -> str:
    """Return the unit of a run's loss: "nats", or "mean squared error" for regression.

    Args:
        metrics: names of the metrics of the run, such as test/loss and test/mse.
    """
    is_regression = any(name.rpartition("/")[2] == "mse" for name in metrics)
    return MEASURES["mse"].label if is_regression else NATS


def main_measure(metrics: Iterable[str], split: str = "test") -> Measure:
    """Return the measure by which runs are compared: the first of `MEASURES` that they log, else the loss in nats."""
    names = set(metrics)
    found = (measure for measure in MEASURES.values() if f"{split}/{measure.name}" in names)
    return next(found, Measure("loss", f"loss in {NATS}", digits=4, higher_is_better=False))
