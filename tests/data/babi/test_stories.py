"""The story format: parsing and writing, errors, the validation split."""

import pytest

from gyral.core.errors import UserError
from gyral.data.babi.stories import Question, Story, parse, split_validation, write

TWO_QUESTIONS = (
    "1 Mary moved to the bathroom.\n"
    "2 Where is Mary? \tbathroom\t1\n"
    "3 Mary went back to the hall.\n"
    "4 John's dog sat.\n"
    "5 Where is Mary? \thall\t3\n"
)


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def test_a_story_of_two_questions() -> None:
    bathroom, hall = words("Mary moved to the bathroom ."), words("Mary went back to the hall .")
    asked = words("Where is Mary ?")
    assert parse(TWO_QUESTIONS, 1) == [
        [
            Question(1, (bathroom,), asked, "bathroom", (0,)),
            Question(1, (bathroom, hall, words("John's dog sat .")), asked, "hall", (1,)),
        ]
    ]
    assert write(parse(TWO_QUESTIONS, 1)) == TWO_QUESTIONS


def test_several_answers_are_one_class_and_facts_keep_their_order() -> None:
    text = (
        "1 Mary got the milk there.\n"
        "2 Mary got the football there.\n"
        "3 What is Mary carrying? \tmilk,football\t2 1\n"
        "1 John dropped the milk.\n"
        "2 What is John carrying? \tnothing\t\n"
    )
    first, second = parse(text, 8)
    assert (first[0].answer, first[0].supports) == ("milk,football", (1, 0))
    assert (second[0].answer, second[0].supports, len(second[0].story)) == ("nothing", (), 1)
    assert write([first, second]) == text


def test_questions_of_some_tasks_have_no_space_before_the_tab() -> None:
    text = "1 The hall is east of the attic.\n2 How do you go from the hall to the attic?\tw,n\t1\n"
    assert write(parse(text, 19)) == text
    assert write(parse(text.replace("?", "? "), 19)) == text


def test_an_empty_text_has_no_stories() -> None:
    assert parse("", 1) == []
    assert write([]) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO_QUESTIONS[:-1], "line 5: does not end: the file is truncated"),
        (TWO_QUESTIONS[:-14], "line 5: does not end: the file is truncated"),
        ("".join(TWO_QUESTIONS.splitlines(keepends=True)[:4]), "line 4: the story ends without a question: the file"),
        ("1 Ann sat.\n" * 2, "line 1: the story ends without a question"),
        ("1 Ann sat.\n2 Where is Ann?\n", "line 2: a question without an answer: 'Where is Ann?'"),
        ("1 Ann sat.\n2 Where is Ann? \t\t1\n", "line 2: a question without an answer: 'Where is Ann?'"),
        ("1 Ann sat.\n2 Where is Ann? \thall\n", "line 2: must have a question, its answer and its facts between tabs"),
        ("1 Ann sat.\n2 Where is Ann? \thall\t1\t1\n", "line 2: must have a question, its answer and its facts"),
        ("1 Ann sat.\n3 Ann ran.\n", "line 2: starts with '3', and must start with 2, or 1 in a new story"),
        ("5 Ann sat.\n", "line 1: starts with '5', and must start with 1"),
        ("\n", "line 1: starts with '', and must start with 1"),
        ("1 Ann sat\n", "line 1: must be a sentence that ends with '.', or a question with '?': 'Ann sat'"),
        ("1 Ann sat.\n2 Where? \thall\t2\n", "line 2: its fact 2 is not a preceding sentence of the story"),
        ("1 Ann sat.\n2 Where? \thall\t0\n", "line 2: its fact 0 is not"),
        ("1 Ann sat.\n2 Where? \thall\t1,2\n", "line 2: its fact 1,2 is not"),
        ("1 A sat.\n2 Where? \thall\t1\n3 B sat.\n4 Where? \thall\t2\n", "line 4: its fact 2 is not"),
    ],
)
def test_a_bad_line_is_named(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, 1, "qa1.txt")
    assert str(caught.value).startswith(f"qa1.txt, {message}")
    assert "\n" not in str(caught.value)


def made(*counts: int) -> list[Story]:
    return [[Question(1, (), (f"{story}", "?"), "yes", ())] * count for story, count in enumerate(counts)]


def test_the_last_tenth_of_the_questions_is_for_validation() -> None:
    stories = made(*[5] * 20)
    assert split_validation(stories) == {"train": stories[:18], "val": stories[18:]}


@pytest.mark.parametrize(
    ("counts", "train"), [((8, 1, 1), 2), ((7, 3), 1), ((88, 3, 9), 2), ((88, 4, 8), 1), ((1, 99), 1), ((99, 1), 1)]
)
def test_validation_starts_at_the_nearest_end_of_a_story(counts: tuple[int, ...], train: int) -> None:
    stories = made(*counts)
    assert split_validation(stories) == {"train": stories[:train], "val": stories[train:]}


def test_a_single_story_cannot_be_split() -> None:
    with pytest.raises(UserError, match=r"^training has 1 stories, and must have at least 2"):
        split_validation(made(5))
