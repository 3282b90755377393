"""Answers of stories in the form of bAbI tasks 1 and 2."""

from gyral.data.babi.stories import Question


def oracle(question: Question) -> str:
    """Return the place in the supporting fact of tasks 1 and 2 in which somebody moves."""
    (move,) = (question.story[index] for index in question.supports if question.story[index][-4] == "to")
    return move[-2]
