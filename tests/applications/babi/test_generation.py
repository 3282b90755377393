"""Answers to questions of stories: the most likely class, line by line."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from gyral.applications.babi.batches import LEVELS
from gyral.applications.babi.generation import answer, answer_story
from gyral.core.errors import OptionError
from gyral.data.babi.stories import Question, questions, write
from tests.applications.babi.test_task import made, scores
from tests.faults.damages import OTHERS
from tests.helpers.running import invoke


def expected_lines(task: Any, chosen: list[Question]) -> list[str]:
    distributions = task.probabilities(chosen)
    best = [task.data.babi.classes[int(row.argmax())] for row in distributions]
    asked = [" ".join(question.words[:-1]) + question.words[-1] for question in chosen]
    return [f"{a} {b} ({100 * row.max():.0f} %)" for a, b, row in zip(asked, best, distributions, strict=True)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_file_in_the_official_format_is_answered(level: str) -> None:
    task = made(level=level)
    stories = task.data.babi.splits["test"][:3]
    lines = write(stories).splitlines(keepends=True)
    assert list(answer(task.train(), lines)) == expected_lines(task.eval(), list(questions(stories)))


def test_plain_lines_are_answered_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    task = made()
    read = []

    def typed() -> Any:
        for line in (
            "Ada took the lamp there.",
            "ada ran to the attic",
            "Where is the lamp?",
            "",
            "Where is the  Lamp ?",
        ):
            read.append(line)
            yield line

    answers = answer(task.train(), typed())
    first = next(answers)
    assert read[-1] == "Where is the lamp?", "answered before more is read"
    sentences = (("Ada", "took", "the", "lamp", "there", "."), ("ada", "ran", "to", "the", "attic", "."))
    words = ("Where", "is", "the", "lamp", "?")
    assert task.training
    second = next(answers)
    assert next(answers, None) is None
    task.eval()
    assert [first] == expected_lines(task, [Question(0, sentences, words, "", ())])
    assert second.partition("?")[2] == expected_lines(task, [Question(0, (), words, "", ())])[0].partition("?")[2]
    with caplog.at_level(logging.WARNING):
        assert len(list(answer(task, ["Zoe ran.", "Where is Zoe?", "Where is Zoe?"]))) == 2
    assert caplog.text.count("'Zoe'") == 1


def test_questions_of_a_file_are_answered(babi_run: Path, tmp_path: Path) -> None:
    story = tmp_path / "story, a = b.txt"
    story.write_text("Mary went to the garden.\nWhere is Mary?\n\nJohn went to the kitchen.\nWhere is John?\n")
    outcome = invoke(f"run={babi_run}", f"story={story}", entry="generate")
    assert outcome.status == 0, outcome.err
    first, second = outcome.out.splitlines()
    assert re.fullmatch(r"Where is Mary\? \w+ \(\d+ %\)", first)
    assert re.fullmatch(r"Where is John\? \w+ \(\d+ %\)", second)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"Mary went to the garden.\n", "has no question; a question ends with a question mark"),
        (b"", "has no question; "),
        (b"Where is M\xff?\n", "line 1: is not UTF-8: byte 0xff at offset 10"),
        (None, "cannot be read (No such file or directory)"),
        ("a named pipe", "is a named pipe, and must be a file"),
    ],
)
def test_a_story_that_cannot_be_answered_is_an_error_of_one_line(
    task: Any, tmp_path: Path, content: bytes | str | None, said: str
) -> None:
    story = tmp_path / "story.txt"
    if isinstance(content, str):
        OTHERS[content](story)
    elif content is not None:
        story.write_bytes(content)
    with pytest.raises(OptionError) as raised:
        list(answer_story(task, story=str(story)))
    assert str(raised.value).startswith(f"story={story}: {said}")


def test_stories_of_a_file_have_predictions_and_the_metrics_of_the_test(tmp_path: Path) -> None:
    task = made()
    stories = task.data.babi.splits["test"]
    (tmp_path / "stories.txt").write_text(write(stories))
    frame = task.predict(tmp_path / "stories.txt")
    expected = task.probabilities(list(questions(stories)))
    assert frame.prediction.tolist() == [task.data.babi.classes[each] for each in expected.argmax(dim=-1).tolist()]
    assert frame.probability.to_numpy() == pytest.approx(expected.amax(dim=-1).numpy(), abs=1e-6)
    assert frame.target.tolist() == [question.answer for question in questions(stories)]
    with torch.no_grad():
        assert frame.attrs["metrics"] == pytest.approx(scores(task, "test", task))
    unlabelled = task.predict(["Mary went to the garden.", "Where is Mary?"])
    assert list(unlabelled) == ["row", "question", "prediction", "probability"]
    assert "metrics" not in unlabelled.attrs
    with pytest.raises(OptionError, match=r"question 1: has no answer, as earlier ones have"):
        task.predict(["Mary ran.", "Where is Mary?\thall\t1", "Where is Mary?"])
