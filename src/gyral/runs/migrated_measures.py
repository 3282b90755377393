"""The measures and remarks of runs of commit 23c1191, which did not write them, for `gyral migrate` and W&B."""

from collections.abc import Collection
from typing import Any

from gyral.core.measures import Measure, Remark
from gyral.runs.measures import MeasuresAndRemarks

PERCENT: dict[str, Any] = {"unit": "%", "scale": 100, "digits": 1}
WRONG = {**PERCENT, "digits": 2, "higher_is_better": False}
LOWER: dict[str, Any] = {"digits": 4, "higher_is_better": False}
FACTORS = (1, 2, 4, 5, 8)
QUESTIONS = ("exist", "count", "query", "compare_number", "compare_attribute")
# The tables of that commit, in its order: name, label, other attributes.
MEASURES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("bits", "bits per symbol", {"digits": 3, "higher_is_better": False}),
    ("f1", "F1", {"digits": 4}),
    ("accuracy", "accuracy", PERCENT),
    ("perplexity", "perplexity", {"digits": 1, "higher_is_better": False}),
    ("rouge1", "ROUGE-1", {}),
    ("rouge2", "ROUGE-2", {}),
    ("rougeL", "ROUGE-L", {}),
    ("mse", "mean squared error", LOWER),
    ("mae", "mean absolute error", LOWER),
    ("r2", "R²", {"digits": 3}),
    ("kl", "Kullback-Leibler divergence", LOWER),
    ("pearson", "Pearson correlation", {"digits": 4}),
    ("spearman", "Spearman correlation", {"digits": 4}),
    ("coarse", "right answers", PERCENT),
    ("fine", "right symbols", PERCENT),
    *((f"coarse_{factor}x", f"right answers at {factor}×", PERCENT) for factor in FACTORS),
    *((f"fine_{factor}x", f"right symbols at {factor}×", PERCENT) for factor in FACTORS),
    ("wrong_bits", "wrong bits", WRONG),
    *((f"wrong_bits_{count}", f"wrong bits, {count} vectors", WRONG) for count in (3, 4, 20, 30, 50, 80, 120)),
    *((f"wrong_bits_{count}_repeats", f"wrong bits, {count} repeats", WRONG) for count in (3, 4)),
    ("accuracy_more_objects", "accuracy, more objects", PERCENT),
    *((f"accuracy_{question}", f"accuracy, {question.replace('_', ' ')}", PERCENT) for question in QUESTIONS),
    ("average_precision", "average precision", {"digits": 4, "at_end": True}),
    ("sequence_accuracy", "sequences all correct", {**PERCENT, "at_end": True}),
    ("majority", "most frequent answer", {**PERCENT, "at_end": True, "floor_of": "accuracy"}),
    ("answerable", "answer among the candidates", {**PERCENT, "at_end": True}),
    ("most_mentioned", "most mentioned candidate", {**PERCENT, "at_end": True}),
    *(
        (f"accuracy_{count}_operators", f"accuracy, operators: {count}", {**PERCENT, "at_end": True})
        for count in range(1, 13)
    ),
)
REMARKS = (
    Remark("stand_ins", "°", "trained on the 1k file, because the 10k file does not exist"),
    Remark("generated", "*", "on GENERATED stories, which are not from bAbI", "GENERATED stories"),
    Remark(
        "substitute",
        "†",
        "on a SUBSTITUTE for the paper's data, so that no published value compares with it",
        "a SUBSTITUTE, with which no published value compares",
    ),
)


def measures_of_23c1191(metrics: Collection[str]) -> MeasuresAndRemarks:
    """Return the measures and remarks of a run of commit 23c1191.

    Args:
        metrics: names of the metrics of the run in its results and curves, such as test/accuracy and val/accuracy.
    """
    names = {metric.partition("/")[2] for metric in metrics}
    measures = (Measure(name, label, **further) for name, label, further in MEASURES if name in names)
    return tuple(measures), tuple(remark for remark in REMARKS if remark.name in names)
