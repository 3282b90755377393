"""Answers to the questions of any bAbI stories."""

import logging
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from gyral.applications.babi.task import BabiTask
from gyral.core.errors import OptionError
from gyral.core.inputs import read_lines, source_of
from gyral.core.measures import percent
from gyral.data.babi.answers import answer_counts
from gyral.data.babi.stories import Question, Sentence
from gyral.tasks.predicted import Tables, metrics_of

log = logging.getLogger(__name__)


def answer_story(task: BabiTask, *, story: str) -> Iterator[str]:
    """Yield the questions of a file with their answers, one line each.

    Args:
        task: a trained task.
        story: path of a file, or "-" for standard input; `read_questions` describes the format.

    Raises:
        OptionError: the file cannot be read, or contains no question.
    """
    answers = answer(task, read_lines("story", story))
    first = next(answers, None)
    if first is None:
        raise OptionError("story", story, "has no question; a question ends with a question mark")
    for line in chain([first], answers):
        yield f"{line}\n"


def answer(task: BabiTask, lines: Iterable[str]) -> Iterator[str]:
    """Answer each question of stories as soon as it is read.

    Args:
        task: a trained task.
        lines: lines of the stories, see `read_questions`.

    Yields:
        Each question with the answer and its probability.
    """
    for text, question in read_questions(task, lines):
        [distribution] = task.probabilities([question])
        best = int(distribution.argmax())
        yield f"{text} {task.data.babi.classes[best]} ({percent(distribution[best])})"


def predict_answers(task: BabiTask, data: Any) -> Tables:
    """Stories: a file, or lines, of sentences and questions, with or without answers as in the official format.

    Args:
        task: a trained task.
        data: path of a file, "-" for standard input, or the lines; see `read_questions`.

    Raises:
        OptionError: the file cannot be read, or contains no question.
    """
    questions = read_questions(task, read_lines("data", data))
    row, is_labelled = 0, False
    while block := list(islice(questions, task.data.eval_batch_size)):
        batch = task.batch_of([question for _, question in block])
        logits = task(batch)
        answers = [question.answer for _, question in block]
        is_labelled = is_labelled or (not row and bool(answers[0]))
        if is_labelled:
            if "" in answers:
                reason = f"question {row + answers.index('')}: has no answer, as earlier ones have"
                raise OptionError("data", source_of(data), reason)
            task.metrics.update(logits, batch, task.loss(logits, batch))
        best = logits.argmax(dim=-1)
        columns = {
            "row": range(row, row + len(block)),
            "question": [text for text, _ in block],
            "prediction": [task.data.babi.classes[each] for each in best.tolist()],
            "probability": logits.softmax(dim=-1).gather(1, best[:, None])[:, 0].cpu().numpy(),
        }
        yield columns | ({"target": answers} if is_labelled else {})
        row += len(block)
    if not row:
        raise OptionError("data", source_of(data), "has no question; a question ends with a question mark")
    return metrics_of(task, is_labelled)


def read_questions(task: BabiTask, lines: Iterable[str]) -> Iterator[tuple[str, Question]]:
    """Yield the questions of stories as they are read, each with its text. The answer is empty if the line has none.

    A line is a sentence or a question; a question ends with a question mark. A story ends at an empty line. If lines
    are numbered, as in the official format, a story also ends before a line with number 1. After a tab there may be the
    answer, and after another one its supporting facts, as in the official format.

    Args:
        task: a trained task.
        lines: lines of the stories.
    """
    story: list[Sentence] = []
    unknown = set[str]()
    number_of_task = min(answer_counts(task.data.babi))
    for line in lines:
        form = r"\s*(\d+ )?([^\t\n\r]*)\t?([^\t\n\r]*)(?s:.*)"
        number, text, right = re.fullmatch(form, line).groups()  # type: ignore[union-attr]
        text = text.strip()
        if number == "1 " or not text:
            story = []
        if not text:
            continue
        words = (*text.rstrip(".?").split(), "?" if text.endswith("?") else ".")
        index = task.data.babi.vocabulary.index
        if new := [word for word in words if word.lower() not in index and word.lower() not in unknown]:
            unknown.update(map(str.lower, new))
            log.warning("%s: not in the training data; read as an unknown word", ", ".join(map(repr, new)))
        if words[-1] == ".":
            story.append(words)
        else:
            yield text, Question(number_of_task, tuple(story), words, right.strip(), ())
