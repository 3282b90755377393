"""Answers to the questions of any bAbI stories."""

import logging
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain

from gyral.applications.babi.task import BabiTask
from gyral.core.errors import OptionError
from gyral.core.inputs import decode, open_input
from gyral.core.measures import percent
from gyral.data.babi.stories import Question, Sentence

log = logging.getLogger(__name__)


def answer_story(task: BabiTask, *, story: str) -> Iterator[str]:
    """Yield the questions of a file with their answers, one line each.

    Args:
        task: a trained task.
        story: path of a file, or "-" for standard input; `answer` describes the format.

    Raises:
        OptionError: the file cannot be read, or contains no question.
    """
    answers = answer(task, read_lines(story))
    first = next(answers, None)
    if first is None:
        raise OptionError("story", story, "has no question; a question ends with a question mark")
    for line in chain([first], answers):
        yield f"{line}\n"


def answer(task: BabiTask, lines: Iterable[str]) -> Iterator[str]:
    """Answer each question of stories as soon as it is read.

    A line is a sentence or a question; a question ends with a question mark. A story ends at an empty line. If lines
    are numbered, as in the official format, a story also ends before a line with number 1. Text after a tab, which is
    the answer and its supporting facts in the official format, is ignored.

    Args:
        task: a trained task.
        lines: lines of the stories.

    Yields:
        Each question with the answer and its probability.
    """
    story: list[Sentence] = []
    unknown = set[str]()
    for line in lines:
        number, text = re.fullmatch(r"\s*(\d+ )?([^\t\n\r]*)(?s:.*)", line).groups()  # type: ignore[union-attr]
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
            continue
        [distribution] = task.probabilities([Question(0, tuple(story), words, "", ())])
        best = int(distribution.argmax())
        yield f"{text} {task.data.babi.classes[best]} ({percent(distribution[best])})"


def read_lines(name: str) -> Iterator[str]:
    """Yield the lines of a text file as they arrive, or of standard input if the name is "-".

    Raises:
        OptionError: the file cannot be read, or is not UTF-8.
    """
    with nullcontext(sys.stdin.buffer) if name == "-" else open_input("story", name) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield decode(line)
            except UnicodeDecodeError as error:
                raise OptionError("story", name, f"line {number}: is not UTF-8: {error.reason}") from None
