"""Answers to a sequence or a program that a user writes."""

import logging
from collections.abc import Iterator
from typing import Any

from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, path_of, read_lines, source_of
from gyral.generation.memory_page import Answered, write_page
from gyral.models.memory_trace import memory_cells, trace_memory
from gyral.tasks.answer import Answer, AnswerTask
from gyral.tasks.predicted import Tables

log = logging.getLogger(__name__)


def answer_sequence(task: AnswerTask, *, sequence: str, html: str | None = None) -> Iterator[str]:
    """Yield the answer of a trained model, one line, and the path of the page if one is written.

    The log has the correct answer.

    Args:
        task: a trained task.
        sequence: the sequence as `task.encode` describes it: symbols, numbers or a program.
        html: path of a page to write, which shows the external memory of the model.

    Raises:
        OptionError: the text is not a sequence of the task, or has more symbols than an external memory of the model
            holds; or the model has no external memory for a page.
    """
    if html is not None and not memory_cells(task):
        raise OptionError("html", html, "shows an external memory, which the model of this run does not have")
    answer = task.answer(sequence)
    log.info("right answer: %s", task.decode(answer.right))
    yield f"{task.decode(answer.given)}\n"
    if html is not None:
        write_page(path_of(html), trace_answer(task, sequence, answer))
        yield f"{html}\n"


def predict_answers(task: AnswerTask, data: Any) -> Tables:
    """Sequences of symbols, numbers or programs: a text file with one on each line, or a list of texts.

    Each row has the answer of the model and the correct answer, which the task computes.

    Args:
        task: a trained task.
        data: path of a file, "-" for standard input, or the texts, each as `task.encode` describes it. Empty lines are
            left out.

    Raises:
        OptionError: the file cannot be read, is empty, or has a line that is not a sequence of the task.
    """
    lines = read_lines("data", data)
    row = 0
    for number, line in enumerate(lines, start=1):
        if text := line.strip():
            try:
                answer = task.answer(text)
            except OptionError as error:
                raise OptionError(
                    "data", source_of(data), f"line {number}: {excerpt([text])}: {error.reason}"
                ) from None
            given, right = ([task.decode(each)] for each in (answer.given, answer.right))
            yield {"row": [row], "sequence": [text], "prediction": given, "target": right}
            row += 1
    if not row:
        raise OptionError("data", source_of(data), "is empty; must have a sequence on each line")
    return {}


def trace_answer(task: AnswerTask, question: str, answer: Answer) -> Answered:
    """Return the answer to a question with the trace of the external memory, for a page."""
    inputs = [task.inputs[token] for token in answer.batch.inputs[0].tolist()]
    given = [task.outputs[each] for each in answer.given]
    outputs = [*[""] * (len(inputs) - len(given)), *given]
    trace = trace_memory(task, answer.batch)
    return Answered(question, task.decode(answer.given), task.decode(answer.right), inputs, outputs, trace)
