r"""Stories with questions, as bAbI has them (Weston et al. 2015, arXiv:1502.05698): their format, and a generator.

A story in the official format, and the three questions that it becomes, each with the sentences before it:

    1 Mary got the milk there.
    2 John moved to the bedroom.
    3 Is John in the hallway? \tno\t2
    4 Mary travelled to the hallway.
    5 Where is the milk? \thallway\t1 4
    6 What is Mary carrying? \tmilk\t1

Lines are numbered from 1 in each story. A question's line has, between tabs, the answer and the lines of the facts that
support it. Several answers, as in tasks 8 and 19, are one with commas between.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, NoReturn, TypeAlias

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError

NO_SPACE = {4, *range(15, 21)}  # the tasks whose files have no space between a question and the tab

Words: TypeAlias = tuple[str, ...]


class Question(NamedTuple):
    """A question and what it is about.

    Attributes:
        task: 1 to 20.
        story: the sentences before it, without earlier questions; words as they are written, the full stop the last.
        words: of the question, the question mark the last.
        answer: the class; several words, as "football,milk" or "n,w", are one.
        supports: the sentences that the answer follows from: their places in `story`.
    """

    task: int
    story: tuple[Words, ...]
    words: Words
    answer: str
    supports: tuple[int, ...]


Story: TypeAlias = list[Question]  # the sentences of each begin with those of the question before


def questions(stories: Iterable[Story]) -> Iterator[Question]:
    """Yield the questions of stories."""
    return (question for story in stories for question in story)


def parse(text: str, task: int, place: str = "text") -> list[Story]:
    """Return the stories of a file in the official format.

    Args:
        text: the file.
        task: whose stories these are.
        place: what the text is, for the error.

    Raises:
        OptionError: the first line that is not as it should be, by its number: a question without an answer, a fact
            that is no sentence before it, a story that ends without a question, a line that is cut off.
    """
    stories: list[Story] = []
    split: dict[str, Words] = {}  # the same sentences come again and again: each is held once
    sentences: list[Words] = []
    lines: list[int | None] = []  # of this story: the place of each sentence, None for a question
    number = 0

    def refuse(why: str, at: int) -> NoReturn:
        raise OptionError(f"{place}, line {at}: {why}")

    def words(written: str) -> Words:
        if written not in split:
            split[written] = (*written[:-1].split(), written[-1])
        return split[written]

    if text and not text.endswith("\n"):
        refuse("does not end: the file is cut off", text.count("\n") + 1)
    for number, line in enumerate(text.split("\n")[:-1], start=1):
        identity, _, content = line.partition(" ")
        if identity == "1":
            if lines and lines[-1] is not None:
                refuse("the story ends without a question", number - 1)
            stories.append([])
            sentences, lines = [], []
        elif identity != str(len(lines) + 1) or not lines:
            allowed = f"{len(lines) + 1}, or 1 in a new story" if lines else "1"
            refuse(f"begins with {identity[:20]!r}, and must begin with {allowed}", number)
        sentence, *rest = content.split("\t")
        sentence = sentence.strip()
        if not rest and sentence.endswith("."):
            lines.append(len(sentences))
            sentences.append(words(sentence))
            continue
        if not sentence.endswith("?"):
            refuse(f"must be a sentence that ends with '.', or a question with '?': {content[:60]!r}", number)
        if not rest or not rest[0].strip():
            refuse(f"a question without an answer: {sentence!r}", number)
        if len(rest) != 2:
            refuse(f"must have a question, its answer and its facts between tabs: {content[:60]!r}", number)
        supports = []
        for fact in rest[1].split():
            index = lines[int(fact) - 1] if fact.isdecimal() and 0 < int(fact) <= len(lines) else None
            if index is None:
                refuse(f"its fact {fact[:20]} is not a sentence before it in the story", number)
            supports.append(index)
        lines.append(None)
        stories[-1].append(Question(task, tuple(sentences), words(sentence), rest[0].strip(), tuple(supports)))
    if lines and lines[-1] is not None:
        refuse("the story ends without a question: the file is cut off", number)
    return stories


def write(stories: Iterable[Story]) -> str:
    """Return stories in the official format; of a published file that was parsed, the same text."""
    lines = []
    for story in stories:
        numbers: list[int] = []  # the lines of the sentences so far
        for asked, question in enumerate(story):
            for sentence in question.story[len(numbers) :]:
                numbers.append(len(numbers) + asked + 1)
                lines.append(f"{numbers[-1]} {_written(sentence)}")
            space = "" if question.task in NO_SPACE else " "
            facts = " ".join(str(numbers[index]) for index in question.supports)
            number = len(numbers) + asked + 1
            lines.append(f"{number} {_written(question.words)}{space}\t{question.answer}\t{facts}")
    return "".join(f"{line}\n" for line in lines)


def _written(words: Words) -> str:
    return " ".join(words[:-1]) + words[-1]


def cut(stories: list[Story]) -> dict[str, list[Story]]:
    """Cut training stories before the last 10 % of their questions, at the nearest end of a story.

    Raises:
        OptionError: fewer than two stories.
    """
    if len(stories) < 2:
        raise OptionError(f"training has {len(stories)} stories, and must have at least 2, one of them for validation")
    aim = 0.9 * sum(map(len, stories))
    best, distance, before = 1, aim, 0
    for index, story in enumerate(stories[:-1], start=1):
        before += len(story)
        if abs(before - aim) < distance:
            best, distance = index, abs(before - aim)
    return {"train": stories[:best], "val": stories[best:]}


# What generated stories are made of.
PEOPLE = ["Ada", "Boris", "Carla", "Deniz"]
PLACES = ["attic", "cellar", "library", "orchard", "stable", "workshop"]
THINGS = ["basket", "ladder", "lamp"]
MOVES = ["walked to", "ran to", "hurried to", "returned to"]
TAKES = ["took", "lifted", "picked up"]
LEAVES = ["left", "laid down", "put down"]
QUESTIONS_A_STORY = 5
GENERATED = (1, 2)  # tasks


def generate(qa: int, count: int, seed: int) -> list[Story]:
    """Return stories of the form of task 1, where a person is, or of task 2, where a thing is, in words of our own.

    In task 1 the place is in the last sentence that the person moves in. In task 2 a thing goes with whoever took it:
    the sentence in which it was taken, or left, says who had it last, and another one where that person was.

    Args:
        qa: 1 or 2.
        count: questions, five a story; the last story may have fewer.
        seed: of the choices.

    Raises:
        OptionError: another task, a count below 1.
    """
    if qa not in GENERATED:
        raise OptionError(f"qa={qa}: stories are generated for tasks 1 and 2 alone")
    check_integer("count", count)
    uniform = random.Random(seed).random  # the one generator that Python promises to keep
    stories = []
    while count > 0:
        stories.append((_one_fact if qa == 1 else _two_facts)(uniform, min(count, QUESTIONS_A_STORY)))
        count -= QUESTIONS_A_STORY
    return stories


def _one_fact(uniform: Callable[[], float], count: int) -> Story:
    sentences: list[Words] = []
    moved: dict[str, tuple[str, int]] = {}  # by person: the place, and the sentence that says so
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
    sentences: list[Words] = []
    moved: dict[str, tuple[str, int]] = {}
    lies = {thing: _choose(uniform, PLACES) for thing in THINGS}  # where things are that nobody has
    holder: dict[str, str] = {}
    taken: dict[str, int] = {}  # by thing that somebody has: the sentence in which it was taken
    left: dict[str, tuple[int, int]] = {}  # by thing that was left: the sentence that says so, and the place's
    story: Story = []

    def happen() -> None:
        person = _choose(uniform, PEOPLE)
        place = moved[person][0] if person in moved else None
        here = [thing for thing in THINGS if lies.get(thing, "") == place]
        held = [thing for thing in THINGS if holder.get(thing) == person]
        chance = uniform()
        if here and chance < 0.6:
            thing = _choose(uniform, here)
            taken[thing], holder[thing] = len(sentences), person
            del lies[thing]
            left.pop(thing, None)
            sentences.append((person, *_choose(uniform, TAKES).split(), "the", thing, "there", "."))
        elif held and chance < 0.8:
            thing = _choose(uniform, held)
            left[thing] = len(sentences), moved[person][1]
            lies[thing] = moved[person][0]
            del taken[thing], holder[thing]
            sentences.append((person, *_choose(uniform, LEAVES).split(), "the", thing, "."))
        else:
            moved[person] = _move(uniform, person, moved, sentences)

    while len(story) < count:
        for _ in range(2 + int(3 * uniform())):
            happen()
        while not (taken or left):
            happen()
        asked = _choose(uniform, sorted({*taken, *left}))
        if asked in taken:
            place, fact = moved[holder[asked]]
            supports = taken[asked], fact
        else:
            place, supports = lies[asked], left[asked]
        story.append(Question(2, tuple(sentences), ("Where", "is", "the", asked, "?"), place, supports))
    return story


def _move(
    uniform: Callable[[], float], person: str, moved: dict[str, tuple[str, int]], sentences: list[Words]
) -> tuple[str, int]:
    """Add a sentence in which a person goes elsewhere; return the place and the sentence's place in the story."""
    place = _choose(uniform, [place for place in PLACES if moved.get(person, ("", 0))[0] != place])
    sentences.append((person, *_choose(uniform, MOVES).split(), "the", place, "."))
    return place, len(sentences) - 1


def _choose(uniform: Callable[[], float], items: list[str]) -> str:
    return items[int(uniform() * len(items))]
