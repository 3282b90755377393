"""The accuracy of a reader by the labels of questions, as in table 4 of Dhingra et al. (2017, arXiv:1703.02620)."""

from pathlib import Path

import numpy as np

from gyral.applications.reading.tasks.base import ReadingTask
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, read_text
from gyral.core.measures import SPLITS
from gyral.runs.evaluation_report import EvaluationReport, Request, output_file

ROWS = 256  # questions of a batch


def score_labels(task: ReadingTask, request: Request, *, labels: str, split: str = "test") -> dict[str, float]:
    """Score a reader on labelled questions: the accuracy on all of them and on those of each label.

    Args:
        task: a trained task.
        request: `save` may be a file .md or .json.
        labels: file with a question on each line: its number in the split, from 1, a tab, and its labels, separated by
            tabs.
        split: the split of the questions: train, val or test.

    Raises:
        OptionError: the file cannot be read or is not in this form, or a file to write has another suffix.
    """
    path = output_file(request.save)
    questions = task.data.splits[check_choice("split", split, SPLITS)]
    labelled = read_labels(labels, len(questions))
    rows = list(labelled)
    right: dict[int, bool] = {}
    for start in range(0, len(rows), ROWS):
        part = rows[start : start + ROWS]
        batch = task.batch_of(split, part)
        predicted = task.probabilities(batch).argmax(dim=1)
        right.update(zip(part, (predicted == batch.targets).tolist(), strict=True))
    groups = {"all": rows}
    for row, own in labelled.items():
        for label in own:
            groups.setdefault(label, []).append(row)
    accuracies = {name: float(np.mean([right[row] for row in own])) for name, own in groups.items()}
    lines = [(name, str(len(groups[name])), f"{100 * accuracy:.1f}") for name, accuracy in accuracies.items()]
    title = f"{request.title}: accuracy on labelled questions of {split}"
    report = EvaluationReport(title, ("label", "questions", "accuracy in %"), lines, task.label_notes, accuracies)
    report.show()
    if path is not None:
        report.write(path)
        print(path)
    return accuracies


def read_labels(path: str | Path, count: int) -> dict[int, list[str]]:
    """Return the labels of questions by their indices from 0.

    Args:
        path: see `score_labels`.
        count: number of questions of the split.

    Raises:
        OptionError: the file cannot be read or is not in the form.
    """
    found: dict[int, list[str]] = {}
    for number, line in enumerate(read_text("labels", Path(path)).split("\n"), start=1):
        if not line.strip():
            continue
        first, *labels = (part.strip() for part in line.split("\t"))
        row = int(first) - 1 if first.isascii() and first.isdigit() and len(first) < 10 else -1
        if not 0 <= row < count or row in found:
            reason = f"must begin with the number of another question, from 1 to {count:,}, not {excerpt([first])}"
            raise OptionError("labels", path, f"line {number}: {reason}")
        if not labels or not all(labels) or "all" in labels:
            raise OptionError("labels", path, f"line {number}: must have a tab and labels after the number, none 'all'")
        found[row] = list(dict.fromkeys(labels))
    if not found:
        raise OptionError("labels", path, "has no labelled question")
    return found
