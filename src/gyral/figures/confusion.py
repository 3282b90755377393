"""Which classes a trained model confuses: a figure, and a table with the measures of each class."""

from textwrap import shorten

import numpy as np
from matplotlib.figure import Figure

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS, percent
from gyral.data.batching import IGNORED
from gyral.figures.common import add_title
from gyral.plotting.style import without_formulas
from gyral.runs.directory import Run
from gyral.runs.evaluation_report import EvaluationReport, Request, number, output_file
from gyral.tasks.class_metrics import MOST_CLASSES, ConfusionMatrix
from gyral.tasks.objective import Classification
from gyral.tasks.sequences import SequencesTask
from gyral.training import build

MOST_COUNTS = 20  # classes whose counts fit into the rectangles
CELL = 0.5  # inches of a rectangle with a count
LABEL = 24  # characters of a class


def confusion(run: Run) -> Figure:
    """Draw the counts of test targets, in rows, and predicted classes, in columns; colors are shares of a row.

    Raises:
        OptionError: the targets are not classes, or they are too many.
    """
    task, step = build.load_trained(run, "best")
    counts = count_pairs(task, "test", run)
    names = [without_formulas(shorten(name, LABEL, placeholder="…")) for name in task.class_names]
    size = max(2.6, CELL * min(len(names), MOST_COUNTS))
    figure = Figure(figsize=(size + 1.9, size + 1.1), layout="constrained")
    add_title(figure, run, f"test, step {step:,}")
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="predicted class", ylabel="target")
    if len(names) <= MOST_COUNTS:
        for (row, column), count in np.ndenumerate(counts):
            color = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=color)
    figure.colorbar(picture, label="share of the targets of a class", shrink=0.85)
    return figure


def print_confusion(task: SequencesTask, request: Request, *, confusion: str = "test") -> dict[str, float]:
    """Print the confusion matrix of a split, with recall, precision and F1 of each class.

    Args:
        task: a trained task.
        request: `save` may be a file .md or .json.
        confusion: the split: train, val or test.

    Raises:
        OptionError: the targets are not classes, or a file to write has another suffix.
    """
    path = output_file(request.save)
    split = check_choice("confusion", confusion, SPLITS)
    counts = count_pairs(task, split)
    names = [shorten(name, LABEL, placeholder="…") for name in task.class_names]
    hits, targets, predictions = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    with np.errstate(invalid="ignore"):
        measures = {"recall": hits / targets, "precision": hits / predictions, "F1": 2 * hits / (targets + predictions)}
    heads = ("target", *(f"predicted {name}" for name in names), *(f"{name} in %" for name in measures))
    rows = [
        (name, *(f"{count:,}" for count in counts[row]), *(number(100 * each[row]) for each in measures.values()))
        for row, name in enumerate(names)
    ]
    share = targets.max() / targets.sum()
    most = f"The most frequent class, {names[targets.argmax()]}, has {percent(share, 1)} of the targets"
    notes = [f"{most}; {percent(hits.sum() / targets.sum(), 1)} of the predictions are right."]
    numbers = {
        f"{target} as {predicted}": float(counts[row, column])
        for row, target in enumerate(task.class_names)
        for column, predicted in enumerate(task.class_names)
    }
    numbers |= {
        f"{m} of {name}": float(v[row]) for m, v in measures.items() for row, name in enumerate(task.class_names)
    }
    report = EvaluationReport(f"{request.title}: confusion matrix of {split}", heads, rows, notes, numbers)
    report.show()
    if path is not None:
        report.write(path)
        print(path)
    return numbers


def count_pairs(task: SequencesTask, split: str, run: Run | None = None) -> np.ndarray:
    """Return the counts of targets (rows) and predicted classes (columns) of a split, (C, C).

    Raises:
        OptionError: the targets are not classes, or they are too many.
    """
    if not isinstance(task.objective, Classification) or task.objective.output_size > MOST_CLASSES:
        reason = f"the targets are not classes, or more than {MOST_CLASSES}; there is no confusion matrix"
        option, value = ("confusion", split) if run is None else ("run", run.directory)
        raise OptionError(option, value, reason)
    matrix = ConfusionMatrix(task.objective.output_size)
    with task.evaluating():
        for batch in task.data.loader(split):
            predicted = task.predict(task.transfer_batch_to_device(batch, task.device, 0)).cpu()
            present = batch.targets != IGNORED
            matrix.update(predicted[present], batch.targets[present])
    counts: np.ndarray = matrix.compute().numpy()
    return counts
