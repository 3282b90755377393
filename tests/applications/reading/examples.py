"""Questions about documents for tests of readers."""

from collections.abc import Sequence

import numpy as np

from gyral.applications.reading.data.encoded import EncodedQuestions
from gyral.applications.reading.data.questions import Question, ReadingBatch
from gyral.applications.reading.tasks.base import ReadingData
from gyral.core.edges import Edge
from gyral.data.vocabulary import PADDING, Vocabulary


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text."""
    return tuple(text.split())


QUESTIONS = (
    Question(
        "first",
        words("john went home . john ate ."),
        words("where is john ?"),
        ("home", "john"),
        (2, 0, 1, 0, 2, 0, 0),
        0,
        (Edge(0, 4), Edge(4, 9)),
        (1, 0, 2, 0, 1, 0, 0, 0, 0, 1, 0),
    ),
    Question("second", words("mary slept ."), words("who slept ?"), ("mary",), (1, 0, 0), 0),
    Question(
        "third",
        words("home is where mary is ."),
        words("@placeholder is mary ."),
        ("mary", "home", "john"),
        (2, 0, 0, 1, 0, 0),
        1,
        (Edge(3, 8),),
        (0, 0, 0, 3, 0, 0, 0, 0, 3, 0),
        placeholder=0,
    ),
)
WORDS = sorted({word for question in QUESTIONS for word in question.document + question.query})
VOCABULARY = Vocabulary("word", [PADDING, *WORDS])


class QuestionData(ReadingData):
    """The questions, the same ones in all splits."""

    questions: Sequence[Question] = QUESTIONS
    batch_size = 2
    eval_batch_size = 2

    def __post_init__(self) -> None:
        self.vocabulary = VOCABULARY
        self.splits = dict.fromkeys(("train", "val", "test"), EncodedQuestions(list(self.questions), VOCABULARY))


def batch_of(*rows: int) -> ReadingBatch:
    """Return some of the questions as a batch."""
    return EncodedQuestions(QUESTIONS, VOCABULARY).batch(np.array(rows))
