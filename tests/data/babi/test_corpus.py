"""bAbI corpora: splits, vocabularies and classes, generated stories, options."""

from pathlib import Path
from statistics import fmean

import pytest

from gyral.core.errors import OptionError
from gyral.data.babi.answers import answer_counts
from gyral.data.babi.corpus import load, load_files, load_generated
from gyral.data.babi.release import TASKS
from gyral.data.babi.stories import parse, questions
from gyral.data.vocabulary import PADDING, UNKNOWN
from tests.data.babi.conftest import counts, message, put, written
from tests.helpers.stories import oracle


@pytest.mark.parametrize(
    ("task", "index", "asked", "answer", "facts"),
    [
        (1, 1, "Where is Daniel ?", "hallway", ["Daniel went back to the hallway ."]),
        (8, 1, "What is Mary carrying ?", "nothing", ["Mary got the football there .", "Mary dropped the football ."]),
        (
            19,
            0,
            "How do you go from the kitchen to the garden ?",
            "s,e",
            ["The kitchen is north of the office .", "The office is west of the garden ."],
        ),
    ],
)
def test_three_published_questions(
    real: Path, task: int, index: int, asked: str, answer: str, facts: list[str]
) -> None:
    question = load(task, "1k", real).splits["train"][0][index]
    assert (" ".join(question.words), question.answer) == (asked, answer)
    assert [" ".join(question.story[fact]) for fact in question.supports] == facts


def test_all_published_tasks_together(real: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = load("all", "1k", real)
    assert counts(data) == [17_994, 2_006, 20_000]
    assert (data.name, data.stand_ins) == ("en", ())
    assert (len(data.vocabulary), len(data.classes)) == (149, 57)
    assert data.vocabulary.symbols[:4] == (PADDING, UNKNOWN, ".", "?")
    assert data.unseen_answers("test") == {"football,apple,milk": 1}
    assert not data.unseen_answers("val")
    assert [record.getMessage() for record in caplog.records] == [
        "en: the answer of 1 of 20000 test questions is not in the training split (football,apple,milk): "
        "they count as wrong"
    ]
    asked = {split: [*questions(data.splits[split])] for split in ("train", "test")}
    assert {question.task for question in asked["test"]} == set(TASKS)
    for task, share in ((1, 0.154), (6, 0.503)):  # of the most frequent answer in training
        known = sorted(question.answer for question in asked["train"] if question.task == task)
        most = max(known, key=known.count)
        assert fmean(question.answer == most for question in asked["test"] if question.task == task) == pytest.approx(
            share
        )


def test_a_published_task_with_ten_thousand_questions(real: Path) -> None:
    data = load(1, "10k", real)
    assert (data.name, counts(data)) == ("en-10k", [9_000, 1_000, 1_000])
    assert data.classes == ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
    assert len(data.vocabulary) == 23


@pytest.mark.parametrize("task", [1, 2])
def test_published_facts_lead_to_the_answer(real: Path, task: int) -> None:
    data = load(task, "1k", real)
    assert all(
        oracle(question) == question.answer for stories in data.splits.values() for question in questions(stories)
    )


@pytest.mark.parametrize(("task", "train"), [(1, 900), (17, 904), (18, 905), (20, 904)])
def test_the_official_validation_split(real: Path, task: int, train: int) -> None:
    data = load(task, "1k", real, validation="official")
    assert (data.name, counts(data)) == ("en-valid", [train, 1_000 - train, 1_000])
    assert counts(load(task, "1k", real))[2] == 1_000


def test_each_story_is_in_either_training_or_validation(release: Path, tmp_path: Path) -> None:
    data = load(7, "10k", tmp_path)
    assert data.splits["train"] + data.splits["val"] == parse(written(7, 60), 7)
    official = load(7, "1k", tmp_path, validation="official")
    assert official.splits["train"] == parse(written(7, 15), 7)
    assert official.splits["val"] == parse(written(7, 5, seed=3), 7)


def test_the_small_file_replaces_only_a_missing_file(release: Path, tmp_path: Path) -> None:
    (release / "en-10k" / "qa3_any-slug_train.txt").unlink()
    data = load("all", "10k", tmp_path, stand_in=True)
    assert data.stand_ins == (3,)
    assert counts(data) == [19 * 55 + 15, 20 * 5, 20 * 10]
    assert "en-10k/qa3_*train.txt" in message("all", "10k", tmp_path)
    assert load(4, "10k", tmp_path).stand_ins == ()


def test_vocabularies_contain_the_words_of_training(
    release: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    story = "1 Ann sat in the attic.\n2 Where is Ann? \tattic\t1\n"
    put(release / "en" / "qa1_any-slug_train.txt", story * 20)
    put(release / "en" / "qa1_any-slug_test.txt", story * 5 + story.replace("Ann", "Zoe").replace("attic", "moon") * 5)
    data = load(1, "1k", tmp_path)
    assert data.vocabulary.symbols == (PADDING, UNKNOWN, ".", "?", "ann", "attic", "in", "is", "sat", "the", "where")
    assert data.classes == ("attic",)
    unknown = data.vocabulary.encode(["zoe"])[0]
    assert data.vocabulary.symbols[unknown] == UNKNOWN
    assert data.unseen_answers("test") == {"moon": 5}
    assert "the answer of 5 of 10 test questions is not in the training split (moon)" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "options", "expected"),
    [
        ((0, "1k"), {}, "qa=0: must be an integer from 1 to 20, or all"),
        ((21, "1k"), {}, "qa=21: must be an integer from 1 to 20, or all"),
        ((1.0, "1k"), {}, "qa=1.0: must be an integer from 1 to 20, or all"),
        ((True, "1k"), {}, "qa=True: must be an integer from 1 to 20, or all"),
        (("one", "1k"), {}, "qa=one: must be an integer from 1 to 20, or all"),
        ((1, "2k"), {}, "size=2k: must be one of 1k, 10k"),
        ((1, "1k"), {"validation": "none"}, "validation=none: must be one of cut, official"),
        ((1, "1k"), {"stand_in": 1}, "stand_in=1: must be true or false"),
    ],
)
def test_unknown_options_are_refused(
    arguments: tuple[object, ...], options: dict[str, object], expected: str, tmp_path: Path
) -> None:
    assert message(*arguments, tmp_path, **options) == expected


@pytest.mark.parametrize("size", ["1k", pytest.param("10k", marks=pytest.mark.slow)])
def test_generated_questions_have_the_published_sizes(size: str, caplog: pytest.LogCaptureFixture) -> None:
    data = load_generated("all", size, seed=1)
    assert data.name == "generated"
    each = [900, 100, 1_000] if size == "1k" else [9_000, 1_000, 1_000]
    assert counts(data) == [2 * count for count in each]
    assert {question.task for question in questions(data.splits["val"])} == {1, 2}
    assert len(data.classes) == 6
    assert not caplog.records
    for answers in answer_counts(data).values():
        assert max(answers.values()) < 0.25 * answers.total()


def test_generated_splits_differ_and_depend_on_the_seed() -> None:
    first, again, other = load_generated(1, "1k", 1), load_generated(1, "1k", 1), load_generated(1, "1k", 2)
    assert first.splits == again.splits
    assert first.splits != other.splits
    assert first.splits["test"] != first.splits["train"] + first.splits["val"]
    with pytest.raises(OptionError, match=r"^qa=3: must be an integer from 1 to 2, or all$"):
        load_generated(3, "1k", 1)
    with pytest.raises(OptionError, match=r"^size=5k: must be one of 1k, 10k$"):
        load_generated(1, "5k", 1)


SPANISH = (
    "1 María fue a la cocina.\n2 Iñaki tomó el balón.\n3 ¿Dónde está María?\tcocina\t1\n4 ¿Qué tiene Iñaki?\tel balón"
)
OTHER = "1 Zoë nació en Málaga.\r\n2 ¿Dónde nació Zoë?\tMálaga\n"


def test_own_files_have_any_names_letters_and_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train, test = tmp_path / "historias.txt", tmp_path / "preguntas.txt"
    train.write_text("\n".join([SPANISH] * 5), encoding="utf-8")
    test.write_text(OTHER, encoding="utf-8")
    found = load_files([train, test], 3)
    assert counts(found) == [8, 2, 1]
    assert (found.name, found.classes) == ("historias.txt", ("cocina", "el balón"))
    assert {"maría", "iñaki", "¿dónde"} <= set(found.vocabulary.symbols)
    assert [question.supports for question in found.splits["train"][0]] == [(0,), ()]
    assert found.splits["test"][0][0].task == 3
    assert (
        "the answer of 1 of 1 test questions is not in the training split (Málaga): they count as wrong" in caplog.text
    )
    assert counts(load_files([train, test, test])) == [10, 1, 1]
    assert load_files([train, test, train]).splits["val"] == load_files([train, test]).splits["test"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "own.txt: has no question"),
        ("1 Hola.\n", "own.txt, line 1: the story ends without a question"),
        ("1 Hola\n2 ¿Qué?\tsí\n", "own.txt, line 1: must be a sentence that ends with '.', or a question with '?'"),
        ("1 Hola.\n3 ¿Qué?\tsí\n", "own.txt, line 2: starts with '3', and must start with 2, or 1 in a new story"),
        ("1 Hola.\n2 ¿Qué?\n", "own.txt, line 2: a question without an answer"),
        ("1 Hola.\n2 ¿Qué?\tsí\t9\n", "own.txt, line 2: its fact 9 is not a preceding sentence of the story"),
        ("1 Hola.\n2 ¿Qué?\tsí\n", "training has 1 stories, and must have at least 2"),
        (b"1 Espa\xf1a.\n", "own.txt: is not UTF-8"),
    ],
)
def test_own_files_that_cannot_be_used_are_one_line(content: str | bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(OptionError) as raised:
        load_files([str(path), str(path)])
    assert str(raised.value).startswith("files=[")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_own_files_are_two_or_three_and_of_one_task(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"^files=a.txt: must be two files"):
        load_files("a.txt")
    with pytest.raises(OptionError, match=r"^qa=all: must be an integer from 1 to 20 for your own files$"):
        load_files(["a.txt", "b.txt"], "all")
    with pytest.raises(OptionError, match=r"^files=.*a.txt: cannot be read \(No such file"):
        load_files([tmp_path / "a.txt", "b.txt"])
