"""bAbI-Mix: questions about two stories of different worlds, whose sentences are mixed (Dhingra et al. 2017)."""

import random
from collections.abc import Callable, Iterator

from gyral.data.babi.corpus import Babi
from gyral.data.babi.entities import (
    ANIMALS,
    COLORS,
    CONTAINERS,
    GENERATED,
    OBJECTS,
    PEOPLE,
    PLACES,
    SHAPE_COLORS,
    SHAPES,
)
from gyral.data.babi.stories import Question, Sentence, Story, questions
from gyral.data.batching import mix_seed
from gyral.data.mentions import plural

TABLES = (PEOPLE, OBJECTS, PLACES, ANIMALS, COLORS, SHAPES, SHAPE_COLORS, CONTAINERS, GENERATED)
SECOND_WORLD = {
    of_form: to_form
    for table in TABLES
    for entity, other in table.items()
    for of_form, to_form in ((entity, other), (plural(entity), plural(other)))
}
"""The replacement of each word in the second of two stories."""


def mix(babi: Babi, seed: int) -> Babi:
    """Return questions about pairs of stories; each split has as many questions as in `babi`.

    Each question with its story is paired with a random question about another story of the same task and split. In the
    second question, its story and its answer, a fixed table replaces all entities by entities of another world. The
    sentences of both stories are mixed in a random order that keeps the order within each story, because the answer
    depends on it. A coin decides which of the two questions is asked.

    The paper does not publish its data or this recipe in detail. Without other entities, the two stories could not be
    distinguished; without the order within a story, the question could not be answered.

    Args:
        babi: the stories.
        seed: seed of the pairs, orders and coins.
    """
    splits: dict[str, list[Story]] = {}
    for split, stories in babi.splits.items():
        by_task: dict[int, list[Story]] = {}
        for story in stories:
            by_task.setdefault(story[0].task, []).append(story)
        splits[split] = [
            [mixed]
            for task, own in by_task.items()
            for mixed in _mix_task(own, random.Random(mix_seed(seed, f"mix {task} {split}")).random)
        ]
    return Babi.of(f"{babi.name}-mix", splits, babi.stand_ins)


def _mix_task(stories: list[Story], uniform: Callable[[], float]) -> Iterator[Question]:
    """Yield each question mixed with a random question about another story."""
    asked = list(questions(stories))
    start = 0
    for story in stories:
        others = len(asked) - len(story)
        for question in story:
            drawn = int(uniform() * others)
            other = asked[drawn if drawn < start else (drawn + len(story)) % len(asked)]
            yield _mix_pair(question, rename(other), uniform)
        start += len(story)


def _mix_pair(first: Question, second: Question, uniform: Callable[[], float]) -> Question:
    """Return one of two questions about their mixed stories."""
    remaining = [len(first.story), len(second.story)]
    mixed: list[Sentence] = []
    place: list[list[int]] = [[], []]  # the positions of the sentences of each story in the mix
    while sum(remaining):
        # in proportion to the remaining sentences, so that all orders are equally likely
        chosen = int(uniform() * sum(remaining) >= remaining[0])
        story = (first, second)[chosen].story
        place[chosen].append(len(mixed))
        mixed.append(story[len(story) - remaining[chosen]])
        remaining[chosen] -= 1
    chosen = int(uniform() >= 0.5)
    question = (first, second)[chosen]
    supports = tuple(place[chosen][index] for index in question.supports)
    return question._replace(story=tuple(mixed), supports=supports)


def rename(question: Question) -> Question:
    """Return a question, its story and its answer with the entities of the second world."""
    return question._replace(
        story=tuple(map(_rename_words, question.story)),
        words=_rename_words(question.words),
        answer=",".join(map(_rename_word, question.answer.split(","))),
    )


def _rename_words(words: Sentence) -> Sentence:
    return tuple(map(_rename_word, words))


def _rename_word(word: str) -> str:
    """Return the word of the second world with the same case."""
    other = SECOND_WORLD.get(word.lower(), word)
    return other.capitalize() if word[:1].isupper() and other != word else other
