"""bAbI-Mix: renamed entities, pairs of stories, and mixed sentences."""

from collections import Counter
from pathlib import Path

import pytest

from gyral.applications.reading.data.babi_mix import SECOND_WORLD, TABLES, mix, rename
from gyral.data.babi.corpus import Babi, load
from gyral.data.babi.release import TASKS
from gyral.data.babi.stories import Question, Story, questions

CARRYING = Question(
    8,
    (("Mary", "got", "the", "milk", "."), ("Mary", "got", "the", "apple", ".")),
    ("What", "is", "mary", "carrying", "?"),
    "milk,apple",
    (0, 1),
)


def corpus(stories: int, task: int = 1) -> Babi:
    """Return stories of two questions, with 1 and 2 sentences, whose words say which they are."""

    def story(number: int) -> Story:
        sentences = tuple(("Mary", f"did{number}", str(line), ".") for line in range(2))
        return [
            Question(task, sentences[: 1 + asked], (f"why{number}", "Mary", str(asked), "?"), "milk", (asked,))
            for asked in range(2)
        ]

    return Babi.of("made", {split: [story(n) for n in range(stories)] for split in ("train", "val", "test")})


def test_entities_are_renamed_in_the_story_the_question_and_the_answer() -> None:
    assert rename(CARRYING) == Question(
        8,
        (("Maria", "got", "the", "juice", "."), ("Maria", "got", "the", "banana", ".")),
        ("What", "is", "maria", "carrying", "?"),
        "juice,banana",
        (0, 1),
    )
    wolves = CARRYING._replace(story=(("Mice", "are", "afraid", "of", "wolves", "."),), answer="n,w")
    assert rename(wolves).story == (("Rats", "are", "afraid", "of", "foxes", "."),)
    assert rename(wolves).answer == "n,w"


def test_the_two_worlds_have_disjoint_words() -> None:
    first, second = set(SECOND_WORLD), Counter(SECOND_WORLD.values())
    assert not first & set(second)
    assert max(second.values()) == 1
    assert all(SECOND_WORLD[word] == table[word] for table in TABLES for word in table), "a word is in two tables"


def test_a_mix_keeps_the_order_of_both_stories_and_asks_one_question() -> None:
    made = corpus(9)
    mixed = mix(made, seed=0)
    assert mixed.name == "made-mix"
    assert {split: len(stories) for split, stories in mixed.splits.items()} == {"train": 18, "val": 18, "test": 18}
    chosen, orders = Counter[bool](), Counter[tuple[bool, ...]]()
    for own, asked in zip(questions(made.splits["test"]), questions(mixed.splits["test"]), strict=True):
        first = tuple(sentence for sentence in asked.story if sentence[0] == "Mary")
        second = tuple(sentence for sentence in asked.story if sentence[0] == "Maria")
        assert first == own.story
        assert [sentence[2] for sentence in second] == [str(line) for line in range(len(second))]
        assert len({sentence[1] for sentence in second}) == 1
        assert second[0][1] != first[0][1], "a mix is of two stories"
        is_first = asked.words[1] == "Mary"
        assert asked.answer == ("milk" if is_first else "juice")
        assert asked.words[0].removeprefix("why") == (first if is_first else second)[0][1].removeprefix("did")
        assert [asked.story[index][2] for index in asked.supports] == [asked.words[2]]
        chosen[is_first] += 1
        orders[tuple(sentence[0] == "Mary" for sentence in asked.story)] += 1
    assert min(chosen.values()) > 4
    assert len(orders) > 5
    assert set(mixed.classes) == {"milk", "juice"}


def test_all_orders_are_equally_likely() -> None:
    two_and_two = Counter(
        tuple(sentence[0] for sentence in asked.story)
        for seed in range(30)
        for asked in questions(mix(corpus(40), seed).splits["test"])
        if len(asked.story) == 4
    )
    total = two_and_two.total()
    assert len(two_and_two) == 6
    assert all(abs(count / total - 1 / 6) < 0.05 for count in two_and_two.values()), two_and_two


def test_the_seed_determines_a_mix_and_tasks_are_not_mixed() -> None:
    one, two = corpus(9, task=1), corpus(9, task=2)
    renumbered = {
        split: [[q._replace(words=("task2", *q.words)) for q in story] for story in stories]
        for split, stories in two.splits.items()
    }
    both = Babi.of("made", {split: [*stories, *renumbered[split]] for split, stories in one.splits.items()})
    mixed = mix(both, 1)
    assert mixed.splits == mix(both, 1).splits != mix(both, 2).splits
    assert mixed.splits["val"] != mixed.splits["test"], "each split has draws of its own"
    for asked in questions(mixed.splits["test"]):
        assert (asked.words[0] == "task2") == (asked.task == 2)
    assert Counter(asked.task for asked in questions(mixed.splits["test"])) == {1: 18, 2: 18}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_the_release(real: Path, task: int) -> None:
    babi = load(task, "1k", real)
    known = set(babi.vocabulary.symbols)
    assert not known & set(SECOND_WORLD.values())
    mixed = mix(babi, 0)
    lengths = [len(asked.story) for split in mixed.splits.values() for asked in questions(split)]
    if task == 3:
        assert sum(length > 50 for length in lengths) / len(lengths) == pytest.approx(0.88, abs=0.02)
    for asked in questions(babi.splits["test"]):
        renamed = rename(asked)
        shared = {w.lower() for s in asked.story for w in s} & {w.lower() for s in renamed.story for w in s}
        assert not shared & set(SECOND_WORLD)
