"""Generated stories in the form of bAbI tasks 1 and 2, for machines without the release."""

import random
from collections.abc import Callable

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.data.babi.stories import Question, Sentence, Story

PEOPLE = ["Ada", "Boris", "Carla", "Deniz"]
PLACES = ["attic", "cellar", "library", "orchard", "stable", "workshop"]
THINGS = ["basket", "ladder", "lamp"]
MOVES = ["walked to", "ran to", "hurried to", "returned to"]
TAKES = ["took", "lifted", "picked up"]
LEAVES = ["left", "laid down", "put down"]
QUESTIONS_A_STORY = 5
TASKS = (1, 2)


def generate(qa: int, count: int, seed: int) -> list[Story]:
    """Return generated stories in the form of task 1 (where is a person?) or task 2 (where is an object?).

    The words differ from the words of bAbI. In task 1, the answer is in the last sentence in which the person moves. In
    task 2, an object moves with the person who took it: one supporting sentence contains who took or left it last,
    and the other one the place of that person.

    Args:
        qa: task, 1 or 2.
        count: number of questions, five per story; the last story may have fewer.
        seed: seed of the choices.

    Raises:
        OptionError: another task, or a count below 1.
    """
    if qa not in TASKS:
        raise OptionError("qa", qa, "stories can only be generated for tasks 1 and 2")
    check_integer("count", count)
    uniform = random.Random(seed).random  # the only generator whose sequence Python guarantees
    stories = []
    while count > 0:
        stories.append((_one_fact if qa == 1 else _two_facts)(uniform, min(count, QUESTIONS_A_STORY)))
        count -= QUESTIONS_A_STORY
    return stories


def _one_fact(uniform: Callable[[], float], count: int) -> Story:
    sentences: list[Sentence] = []
    moved: dict[str, tuple[str, int]] = {}  # by person: the place and the index of the sentence
    story: Story = []
    while len(story) < count:
        for _ in range(2):
            person = _choose(uniform, PEOPLE)
            moved[person] = _move(uniform, person, moved, sentences)
        asked = _choose(uniform, sorted(moved))
        place, fact = moved[asked]
        story.append(Question(1, tuple(sentences), ("Where", "is", asked, "?"), place, (fact,)))
    return story


def _two_facts(uniform: Callable[[], float], count: int) -> Story:
    sentences: list[Sentence] = []
    moved: dict[str, tuple[str, int]] = {}
    places = {thing: _choose(uniform, PLACES) for thing in THINGS}  # of objects that nobody holds
    holder: dict[str, str] = {}
    taken: dict[str, int] = {}  # by object that somebody holds: index of the sentence in which it was taken
    left: dict[str, tuple[int, int]] = {}  # by object that was left: indices of that sentence and of the place's
    story: Story = []

    def add_event() -> None:
        person = _choose(uniform, PEOPLE)
        place = moved[person][0] if person in moved else None
        here = [thing for thing in THINGS if places.get(thing, "") == place]
        held = [thing for thing in THINGS if holder.get(thing) == person]
        chance = uniform()
        if here and chance < 0.6:
            thing = _choose(uniform, here)
            taken[thing], holder[thing] = len(sentences), person
            del places[thing]
            left.pop(thing, None)
            sentences.append((person, *_choose(uniform, TAKES).split(), "the", thing, "there", "."))
        elif held and chance < 0.8:
            thing = _choose(uniform, held)
            left[thing] = len(sentences), moved[person][1]
            places[thing] = moved[person][0]
            del taken[thing], holder[thing]
            sentences.append((person, *_choose(uniform, LEAVES).split(), "the", thing, "."))
        else:
            moved[person] = _move(uniform, person, moved, sentences)

    while len(story) < count:
        for _ in range(2 + int(3 * uniform())):
            add_event()
        while not (taken or left):
            add_event()
        asked = _choose(uniform, sorted({*taken, *left}))
        if asked in taken:
            place, fact = moved[holder[asked]]
            supports = taken[asked], fact
        else:
            place, supports = places[asked], left[asked]
        story.append(Question(2, tuple(sentences), ("Where", "is", "the", asked, "?"), place, supports))
    return story


def _move(
    uniform: Callable[[], float], person: str, moved: dict[str, tuple[str, int]], sentences: list[Sentence]
) -> tuple[str, int]:
    """Add a sentence in which a person moves; return the new place and the index of the sentence."""
    place = _choose(uniform, [place for place in PLACES if moved.get(person, ("", 0))[0] != place])
    sentences.append((person, *_choose(uniform, MOVES).split(), "the", place, "."))
    return place, len(sentences) - 1


def _choose(uniform: Callable[[], float], items: list[str]) -> str:
    return items[int(uniform() * len(items))]
