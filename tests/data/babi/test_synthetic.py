"""Generated stories: consistent, answerable from their facts, reproducible."""

import re
from collections import Counter

import pytest

from gyral.core.errors import OptionError
from gyral.data.babi.stories import parse, questions, write
from gyral.data.babi.synthetic import LEAVES, MOVES, PLACES, TAKES, generate
from tests.helpers.stories import oracle

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
    """Return the places of persons and things after a generated story, and check its consistency."""
    where: dict[str, str] = {}
    holder: dict[str, str] = {}
    for person, *rest in story:
        sentence = " ".join(rest)
        if matched := re.fullmatch(rf"({'|'.join(MOVES)}) the (\w+) \.", sentence):
            assert where.get(person) != matched[2]
            where[person] = matched[2]
        elif matched := re.fullmatch(rf"({'|'.join(TAKES)}) the (\w+) there \.", sentence):
            assert matched[2] not in holder
            assert where.get(matched[2], where[person]) == where[person], "it lies where it is taken"
            holder[matched[2]] = person
        else:
            matched = re.fullmatch(rf"({'|'.join(LEAVES)}) the (\w+) \.", sentence)
            assert matched, sentence
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
def test_options_that_cannot_be_generated_are_refused(qa: int, count: int, message: str) -> None:
    with pytest.raises(OptionError, match=f"^{message}"):
        generate(qa, count, seed=1)
