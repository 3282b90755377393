"""bAbI as reading comprehension: mentions, chains, edges and candidates."""

from pathlib import Path

import pytest

from gyral.applications.reading.data.babi_questions import answers_in_stories, read_questions
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from gyral.data.babi import entities as tables
from gyral.data.babi.corpus import Babi, load, load_generated
from gyral.data.babi.entities import ENTITIES, EntityMentions
from gyral.data.babi.release import TASKS
from gyral.data.babi.stories import Question, Story, questions
from gyral.data.batching import IGNORED
from gyral.data.vocabulary import split_words

STORY = tuple(tuple(words.split()) for words in ("Mice are afraid of wolves .", "Emily is a mouse ."))
AFRAID = Question(15, STORY, tuple(split_words("What is emily afraid of ?")), "wolf", (1, 0))
IN_DOCUMENT = {1, 2, 3, 4, 5, 11, 12, 13, 14, 16}  # tasks whose answers are words of their stories


def corpus(train: list[Story], test: list[Story]) -> Babi:
    return Babi.of("made", {"train": train, "val": train, "test": test})


def test_chains_ignore_case_and_number_and_cross_into_the_question() -> None:
    found = EntityMentions.of("all")
    assert found.chains(AFRAID) == {"mouse": ((0, 0), (9, 9)), "wolf": ((4, 4),), "emily": ((6, 6), (13, 13))}
    assert found.edges(AFRAID) == (Edge(0, 9), Edge(6, 13))
    assert found.sentence_edges(AFRAID) == (Edge(0, 1), Edge(1, 2))
    assert EntityMentions.of("names").edges(AFRAID) == (Edge(6, 13),)


def test_sentences_are_joined_once_and_not_with_themselves() -> None:
    story = (("Bill", "met", "Bill", "."), ("Bill", "got", "the", "milk", "."), ("Bill", "left", "the", "milk", "."))
    asked = Question(5, story, ("Who", "left", "?"), "Bill", (2,))
    assert EntityMentions.of("all").sentence_edges(asked) == (Edge(0, 1), Edge(1, 2))


def test_an_unknown_kind_of_entities_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^entities=some: must be one of names, all$"):
        EntityMentions.of("some")


def test_a_question() -> None:
    babi = corpus([[AFRAID, AFRAID._replace(answer="mouse")]], [[AFRAID, AFRAID._replace(answer="cat")]])
    first, second = read_questions(babi, "test", edges="entities", entities="all")
    assert first.name == "made test question 1 (task 15)"
    assert first.document == tuple(split_words("mice are afraid of wolves . emily is a mouse ."))
    assert first.query == tuple(split_words("what is emily afraid of ?"))
    assert first.candidates == ("mouse", "wolf")
    assert first.mentions == (0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0)  # "mice" and "wolves" are not the words of an answer
    assert first.chains == (1, 0, 0, 0, 2, 0, 3, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0)
    assert first.edges == (Edge(0, 9), Edge(6, 13))
    assert (first.answer, second.answer, first.task) == (1, IGNORED, 15)
    without = next(read_questions(babi, "test", edges="none", entities="all"))
    assert without == first._replace(edges=())
    plurals = next(read_questions(babi, "test", edges="entities", entities="all", plurals=True))
    assert plurals == first._replace(mentions=(1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0))
    with pytest.raises(OptionError, match=r"^edges=some: must be one of entities, none$"):
        next(read_questions(babi, "test", edges="some", entities="all"))


def test_answers_in_stories_are_found_in_any_case_and_as_plurals_on_request() -> None:
    upper = AFRAID._replace(answer="EMILY")
    assert answers_in_stories(corpus([[upper]], [[upper]]))
    assert not answers_in_stories(corpus([[upper, AFRAID]], [[upper]]))
    assert answers_in_stories(corpus([[upper, AFRAID]], [[upper]]), plurals=True)
    assert answers_in_stories(load_generated(2, "1k", 0))


def test_generated_stories_have_edges() -> None:
    babi = load_generated(2, "1k", 0)
    assert all(question.edges for question in read_questions(babi, "val", edges="entities", entities="names"))


def test_entities_are_different_words() -> None:
    for kind, words in ENTITIES.items():
        assert len(set(words)) == len(words), kind
    assert set(ENTITIES["names"]) < set(ENTITIES["all"])


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_release(real: Path, task: int) -> None:
    babi = load(task, "1k", real)
    assert answers_in_stories(babi) == (task in IN_DOCUMENT)
    assert answers_in_stories(babi, plurals=True) == (task in {*IN_DOCUMENT, 15})
    words = {word.lower() for asked in questions(babi.splits["train"]) for sentence in asked.story for word in sentence}
    first_world = {
        entity
        for table in (tables.PEOPLE, tables.OBJECTS, tables.PLACES, tables.ANIMALS, tables.COLORS, tables.CONTAINERS)
        for entity in table
    }
    for split in babi.splits:
        for asked in read_questions(babi, split, edges="entities", entities="all"):
            assert max(asked.chains) <= 13
            assert asked.edges
            if task in IN_DOCUMENT:
                assert asked.answer + 1 in asked.mentions
            assert all(
                chain
                for word, chain in zip(asked.document, asked.chains, strict=False)
                if word in first_world and word in words
            )
