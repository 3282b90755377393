"""Stories: the format there and back, bad lines, the cut for validation, the generator against what it tells."""

import re
from collections import Counter

import pytest

from gyral.core.errors import OptionError
from gyral.data.babi.stories import (
    LEAVES,
    MOVES,
    PLACES,
    TAKES,
    Question,
    Story,
    cut,
    generate,
    parse,
    questions,
    write,
)

TWO_QUESTIONS = (
    "1 Mary moved to the bathroom.\n"
    "2 Where is Mary? \tbathroom\t1\n"
    "3 Mary went back to the hall.\n"
    "4 John's dog sat.\n"
    "5 Where is Mary? \thall\t3\n"
)

GENERATED_ONE = (
    "1 Ada returned to the workshop.\n"
    "2 Boris ran to the library.\n"
    "3 Where is Boris? \tlibrary\t2\n"
    "4 Deniz walked to the attic.\n"
    "5 Deniz returned to the orchard.\n"
    "6 Where is Ada? \tworkshop\t1\n"
)
GENERATED_TWO = (
    "1 Boris returned to the orchard.\n"
    "2 Ada ran to the workshop.\n"
    "3 Deniz hurried to the library.\n"
    "4 Ada walked to the stable.\n"
    "5 Ada lifted the lamp there.\n"
    "6 Where is the lamp? \tstable\t5 4\n"
    "7 Ada laid down the lamp.\n"
    "8 Ada lifted the lamp there.\n"
    "9 Boris hurried to the workshop.\n"
    "10 Where is the lamp? \tstable\t8 4\n"
)


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def oracle(question: Question) -> str:
    """Return the place that the supporting facts of tasks 1 and 2 name: that of the one in which somebody moves."""
    (move,) = (question.story[index] for index in question.supports if question.story[index][-4] == "to")
    return move[-2]


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


def test_no_text_has_no_stories() -> None:
    assert parse("", 1) == []
    assert write([]) == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TWO_QUESTIONS[:-1], "line 5: does not end: the file is cut off"),
        (TWO_QUESTIONS[:-14], "line 5: does not end: the file is cut off"),
        ("".join(TWO_QUESTIONS.splitlines(keepends=True)[:4]), "line 4: the story ends without a question: the file"),
        ("1 Ann sat.\n" * 2, "line 1: the story ends without a question"),
        ("1 Ann sat.\n2 Where is Ann?\n", "line 2: a question without an answer: 'Where is Ann?'"),
        ("1 Ann sat.\n2 Where is Ann? \t\t1\n", "line 2: a question without an answer: 'Where is Ann?'"),
        ("1 Ann sat.\n2 Where is Ann? \thall\n", "line 2: must have a question, its answer and its facts between tabs"),
        ("1 Ann sat.\n2 Where is Ann? \thall\t1\t1\n", "line 2: must have a question, its answer and its facts"),
        ("1 Ann sat.\n3 Ann ran.\n", "line 2: begins with '3', and must begin with 2, or 1 in a new story"),
        ("5 Ann sat.\n", "line 1: begins with '5', and must begin with 1"),
        ("\n", "line 1: begins with '', and must begin with 1"),
        ("1 Ann sat\n", "line 1: must be a sentence that ends with '.', or a question with '?': 'Ann sat'"),
        ("1 Ann sat.\n2 Where? \thall\t2\n", "line 2: its fact 2 is not a sentence before it in the story"),
        ("1 Ann sat.\n2 Where? \thall\t0\n", "line 2: its fact 0 is not"),
        ("1 Ann sat.\n2 Where? \thall\t1,2\n", "line 2: its fact 1,2 is not"),
        ("1 A sat.\n2 Where? \thall\t1\n3 B sat.\n4 Where? \thall\t2\n", "line 4: its fact 2 is not"),
    ],
)
def test_a_bad_line_is_named(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse(text, 1, "qa1.txt")
    assert str(caught.value).startswith(f"qa1.txt, {message}")
    assert "\n" not in str(caught.value)


def made(*counts: int) -> list[Story]:
    return [[Question(1, (), (f"{story}", "?"), "yes", ())] * count for story, count in enumerate(counts)]


def test_the_last_tenth_of_the_questions_is_for_validation() -> None:
    stories = made(*[5] * 20)
    assert cut(stories) == {"train": stories[:18], "val": stories[18:]}


@pytest.mark.parametrize(
    ("counts", "train"), [((8, 1, 1), 2), ((7, 3), 1), ((88, 3, 9), 2), ((88, 4, 8), 1), ((1, 99), 1), ((99, 1), 1)]
)
def test_stories_are_cut_at_the_nearest_end(counts: tuple[int, ...], train: int) -> None:
    stories = made(*counts)
    assert cut(stories) == {"train": stories[:train], "val": stories[train:]}


def test_one_story_cannot_be_cut() -> None:
    with pytest.raises(OptionError, match=r"^training has 1 stories, and must have at least 2"):
        cut(made(5))


@pytest.mark.parametrize("qa", [1, 2])
def test_generated_stories_answer_from_their_facts(qa: int) -> None:
    generated = list(questions(generate(qa, 2_000, seed=3)))
    assert len(generated) == 2_000
    assert all(oracle(question) == question.answer for question in generated)
    assert all(len(question.supports) == qa for question in generated)
    assert {question.task for question in generated} == {qa}
    answers = Counter(question.answer for question in generated)
    assert set(answers) == set(PLACES)
    assert max(answers.values()) < 0.25 * len(generated)
    places = [len(question.story) - max(question.supports) for question in generated]
    assert max(places) > 8, "old facts must be asked for, too"


def happens(story: tuple[tuple[str, ...], ...]) -> dict[str, str]:
    """Return where persons and things are after what a generated story tells, and check that it can be."""
    where: dict[str, str] = {}
    holder: dict[str, str] = {}
    for person, *rest in story:
        told = " ".join(rest)
        if matched := re.fullmatch(rf"({'|'.join(MOVES)}) the (\w+) \.", told):
            assert where.get(person) != matched[2]
            where[person] = matched[2]
        elif matched := re.fullmatch(rf"({'|'.join(TAKES)}) the (\w+) there \.", told):
            assert matched[2] not in holder
            assert where.get(matched[2], where[person]) == where[person], "it lies where it is taken"
            holder[matched[2]] = person
        else:
            matched = re.fullmatch(rf"({'|'.join(LEAVES)}) the (\w+) \.", told)
            assert matched, told
            assert holder.pop(matched[2]) == person
            where[matched[2]] = where[person]
        where |= {thing: where[owner] for thing, owner in holder.items()}
    return where


@pytest.mark.parametrize("qa", [1, 2])
def test_generated_stories_are_consistent(qa: int) -> None:
    for story in generate(qa, 500, seed=4):
        for question in story:
            assert happens(question.story)[question.words[-2]] == question.answer


@pytest.mark.parametrize("qa", [1, 2])
def test_generated_stories_are_in_the_official_format(qa: int) -> None:
    stories = generate(qa, 103, seed=5)
    assert [len(story) for story in stories] == [5] * 20 + [3]
    assert parse(write(stories), qa) == stories


def test_generated_stories_depend_on_the_seed_alone() -> None:
    assert generate(2, 50, seed=1) == generate(2, 50, seed=1)
    assert generate(2, 50, seed=1) != generate(2, 50, seed=2)
    assert write(generate(1, 2, seed=1)) == GENERATED_ONE
    assert write(generate(2, 2, seed=1)) == GENERATED_TWO


@pytest.mark.parametrize(("qa", "count", "message"), [(3, 5, "qa=3: "), ("all", 5, "qa=all: "), (1, 0, "count=0: ")])
def test_what_cannot_be_generated(qa: int, count: int, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        generate(qa, count, seed=1)
