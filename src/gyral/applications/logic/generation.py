"""The relation between two formulas of propositional logic that a user writes."""

import logging
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from gyral.applications.logic.data import corpus
from gyral.applications.logic.data.corpus import CLASSES
from gyral.applications.logic.data.formulas import RELATIONS, relation, truth_table
from gyral.applications.logic.task import LogicalInferenceTask
from gyral.core.errors import OptionError
from gyral.core.inputs import read_lines, source_of
from gyral.core.measures import percent
from gyral.tasks.predicted import Tables, class_columns, metrics_of

log = logging.getLogger(__name__)


def relate_formulas(task: LogicalInferenceTask, *, formulas: str) -> Iterator[str]:
    """Yield two formulas with the most likely relation between them and its probability, one line.

    The log has the correct relation, which follows from the truth tables of the formulas.

    Args:
        task: a trained task.
        formulas: two formulas as `gyral.applications.logic.data.formulas` describes them, with a comma between them;
            spaces are optional beside brackets.

    Raises:
        OptionError: the text is not two formulas.
    """
    parts, right = parse_pair(formulas, "formulas", formulas)
    log.info("right relation: %s (%s)", right, RELATIONS[right])
    probabilities = task.probabilities(*parts)
    best = int(probabilities.argmax())
    first, second = (" ".join(tokens) for tokens in parts)
    yield f"{first} {CLASSES[best]} {second} ({RELATIONS[CLASSES[best]]}, {percent(float(probabilities[best]))})\n"


def predict_relations(task: LogicalInferenceTask, data: Any) -> Tables:
    """Pairs of formulas: a text file with two formulas and a comma between them on each line, or a list of such lines.

    The correct relation follows from the formulas, so that there are always targets and metrics.

    Args:
        task: a trained task.
        data: path of a file, "-" for standard input, or the lines. Empty lines are left out.

    Raises:
        OptionError: the file cannot be read, is empty, or has a line that is not two formulas.
    """
    given = read_lines("data", data)
    numbered, row = ((number, line) for number, line in enumerate(given, start=1) if line.strip()), 0
    while block := list(islice(numbered, task.data.eval_batch_size)):
        parsed = [parse_pair(line, "data", source_of(data), f"line {number}: ") for number, line in block]
        pairs = [(*(" ".join(tokens) for tokens in parts), right) for parts, right in parsed]
        text = "\n".join("\t".join((right, first, second)) for first, second, right in pairs)
        encoded = corpus.encode(text, 0, "data")
        batch = task.transfer_batch_to_device(encoded.batch(np.arange(len(pairs))), task.device, 0)
        logits = task(batch)
        task.metrics.update(logits, batch, task.loss(logits, batch))
        firsts, seconds, targets = zip(*pairs, strict=True)
        columns = {"row": range(row, row + len(block)), "first": firsts, "second": seconds}
        yield columns | class_columns(logits, CLASSES) | {"target": targets}
        row += len(block)
    if not row:
        raise OptionError(
            "data", source_of(data), "is empty; must have two formulas with a comma between them on each line"
        )
    return metrics_of(task, is_labelled=True)


def parse_pair(text: str, option: str, value: Any, place: str = "") -> tuple[list[list[str]], str]:
    """Return the tokens of two formulas with a comma between them, and the relation between the formulas.

    Args:
        text: the formulas.
        option, value: the option that gives them, and its value, for errors.
        place: where they are, for errors.

    Raises:
        OptionError: the text is not two formulas.
    """
    parts = [re.findall(r"[^\s()]+|[()]", part) for part in text.split(",")]
    if len(parts) != 2:
        raise OptionError(option, value, f"{place}must be two formulas with a comma between them")
    tables = []
    for tokens in parts:
        try:
            tables.append(truth_table(tokens))
        except ValueError as error:
            raise OptionError(option, value, f"{place}'{' '.join(tokens)}' {error}") from None
    return parts, relation(*tables)
