r"""The bAbI story format (Weston et al. 2015, arXiv:1502.05698): parsing, writing, validation split.

A story in the official format with three questions, each about the sentences before it:

    1 Mary got the milk there.
    2 John moved to the bedroom.
    3 Is John in the hallway? \tno\t2
    4 Mary travelled to the hallway.
    5 Where is the milk? \thallway\t1 4
    6 What is Mary carrying? \tmilk\t1

Lines are numbered from 1 in each story. The line of a question contains, separated by tabs, the question, the answer
and the line numbers of its supporting facts. Several answers, as in tasks 8 and 19, are one answer with commas.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn, TypeAlias

from gyral.core.errors import UserError

NO_SPACE = {4, *range(15, 21)}  # tasks whose files have no space between a question and the tab

Sentence: TypeAlias = tuple[str, ...]  # words and the final punctuation mark


class Question(NamedTuple):
    """A question about a story.

    Attributes:
        task: number of the task, 1 to 20.
        story: the sentences before the question, without earlier questions; words keep their case.
        words: words of the question and the question mark.
        answer: the answer class; several words, such as "football,milk" or "n,w", are one class.
        supports: indices in `story` of the sentences that imply the answer.
    """

    task: int
    story: tuple[Sentence, ...]
    words: Sentence
    answer: str
    supports: tuple[int, ...]


Story: TypeAlias = list[Question]  # the sentences of each question start with those of the previous question


def questions(stories: Iterable[Story]) -> Iterator[Question]:
    """Yield the questions of stories."""
    return (question for story in stories for question in story)


def parse(text: str, task: int, place: str = "text", *, needs_facts: bool = True) -> list[Story]:
    """Return the stories of a file in the official format.

    Args:
        text: content of the file.
        task: task of the stories.
        place: name of the text, for errors.
        needs_facts: whether each question must name its facts, as in the release.

    Raises:
        UserError: the text is not in the format. The message names the first wrong line: a question without an answer,
            a fact that is not a preceding sentence, a story that ends without a question, or a truncated line.
    """
    parser = _Parser(task, place, needs_facts)
    if text and not text.endswith("\n"):
        parser.fail("does not end: the file is truncated", text.count("\n") + 1)
    for line in text.split("\n")[:-1]:
        parser.parse_line(line)
    if parser.lines and parser.lines[-1] is not None:
        parser.fail("the story ends without a question: the file is truncated", parser.number)
    return parser.stories


class _Parser:
    """State of parsing: the stories so far, and the sentences and lines of the current story."""

    def __init__(self, task: int, place: str, needs_facts: bool) -> None:
        self.task = task
        self.needs_facts = needs_facts
        self.place = place
        self.number = 0  # of the line in the file
        self.stories: list[Story] = []
        self.sentences: list[Sentence] = []
        self.lines: list[int | None] = []  # the index of each line's sentence, None for a question
        self._known: dict[str, Sentence] = {}  # sentences repeat: each is stored once

    def fail(self, reason: str, number: int) -> NoReturn:
        raise UserError(f"{self.place}, line {number}: {reason}")

    def parse_line(self, line: str) -> None:
        self.number += 1
        identity, _, content = line.partition(" ")
        if identity == "1":
            if self.lines and self.lines[-1] is not None:
                self.fail("the story ends without a question", self.number - 1)
            self.stories.append([])
            self.sentences, self.lines = [], []
        elif identity != str(len(self.lines) + 1) or not self.lines:
            allowed = f"{len(self.lines) + 1}, or 1 in a new story" if self.lines else "1"
            self.fail(f"starts with {identity[:20]!r}, and must start with {allowed}", self.number)
        sentence, *rest = content.split("\t")
        sentence = sentence.strip()
        if not rest and sentence.endswith("."):
            self.lines.append(len(self.sentences))
            self.sentences.append(self._split(sentence))
            return
        if not sentence.endswith("?"):
            reason = f"must be a sentence that ends with '.', or a question with '?': {content[:60]!r}"
            self.fail(reason, self.number)
        if not rest or not rest[0].strip():
            self.fail(f"a question without an answer: {sentence!r}", self.number)
        if len(rest) == 1 and not self.needs_facts:
            rest.append("")
        if len(rest) != 2:
            self.fail(f"must have a question, its answer and its facts between tabs: {content[:60]!r}", self.number)
        supports = tuple(map(self._support, rest[1].split()))
        self.lines.append(None)
        question = Question(self.task, tuple(self.sentences), self._split(sentence), rest[0].strip(), supports)
        self.stories[-1].append(question)

    def _support(self, fact: str) -> int:
        is_number = fact.isdecimal() and len(fact) < 10  # Python does not convert thousands of digits
        number = int(fact) if is_number else 0
        index = self.lines[number - 1] if 0 < number <= len(self.lines) else None
        if index is None:
            self.fail(f"its fact {fact[:20]} is not a preceding sentence of the story", self.number)
        return index

    def _split(self, text: str) -> Sentence:
        if text not in self._known:
            self._known[text] = (*text[:-1].split(), text[-1])
        return self._known[text]


def write(stories: Iterable[Story]) -> str:
    """Return stories in the official format; `write` after `parse` reproduces a published file."""
    lines = []
    for story in stories:
        numbers: list[int] = []  # line numbers of the sentences so far
        for asked, question in enumerate(story):
            for sentence in question.story[len(numbers) :]:
                numbers.append(len(numbers) + asked + 1)
                lines.append(f"{numbers[-1]} {_join(sentence)}")
            space = "" if question.task in NO_SPACE else " "
            facts = " ".join(str(numbers[index]) for index in question.supports)
            number = len(numbers) + asked + 1
            lines.append(f"{number} {_join(question.words)}{space}\t{question.answer}\t{facts}")
    return "".join(f"{line}\n" for line in lines)


def _join(sentence: Sentence) -> str:
    return " ".join(sentence[:-1]) + sentence[-1]


def split_validation(stories: list[Story]) -> dict[str, list[Story]]:
    """Split training stories before the last 10 % of their questions, at the nearest story boundary.

    Raises:
        UserError: there are fewer than two stories.
    """
    if len(stories) < 2:
        raise UserError(f"training has {len(stories)} stories, and must have at least 2, one of them for validation")
    target = 0.9 * sum(map(len, stories))
    best, distance, before = 1, target, 0
    for index, story in enumerate(stories[:-1], start=1):
        before += len(story)
        if abs(before - target) < distance:
            best, distance = index, abs(before - target)
    return {"train": stories[:best], "val": stories[best:]}


def sentence_text(words: Sentence) -> str:
    """Return a sentence as text, with its punctuation mark directly after the last word."""
    return " ".join(words[:-1]) + words[-1]
