"""bAbI: the release as folder and archive, its splits and vocabularies, what is missing or wrong in it."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from gyral.core.errors import OptionError
from gyral.data.babi import release as babi
from gyral.data.babi.release import ARCHIVE, PADDING, RELEASE, TASKS, Babi, load, load_generated
from gyral.data.babi.stories import Question, Story, generate, parse, questions, write
from gyral.data.download import SOURCES
from gyral.data.vocabulary import UNKNOWN
from tests.data.babi.test_stories import oracle

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data"))
SMALL = {"1k": 20, "10k": 60}  # questions of a training file in these tests' own releases
SMALL_TEST = 10


@pytest.fixture
def real() -> Path:
    """The data folder with the real release."""
    if not (DATA / "babi" / RELEASE / "en").is_dir():
        pytest.skip(f"no babi/{RELEASE}/en in {DATA} (set DATA_DIR)")
    return DATA


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release of small files, all of them generated, in the data folder that is its parent's parent."""
    monkeypatch.setattr(babi, "SIZES", SMALL)
    monkeypatch.setattr(babi, "TEST_SIZE", SMALL_TEST)
    monkeypatch.setattr(babi, "PUBLISHED", {task: {} for task in TASKS})
    folder = tmp_path / "babi" / RELEASE
    for task in TASKS:
        for name, size in (("en", "1k"), ("en-10k", "10k")):
            put(folder / name / f"qa{task}_any-slug_train.txt", written(task, SMALL[size]))
            put(folder / name / f"qa{task}_any-slug_test.txt", written(task, SMALL_TEST, seed=2))
        put(folder / "en-valid" / f"qa{task}_train.txt", written(task, 15))
        put(folder / "en-valid" / f"qa{task}_valid.txt", written(task, 5, seed=3))
        put(folder / "en-valid" / f"qa{task}_test.txt", written(task, SMALL_TEST, seed=2))
    return folder


def written(task: int, count: int, seed: int = 1) -> str:
    """Return generated stories as those of any task."""
    stories = generate(1 + task % 2, count, seed)
    return write([[question._replace(task=task) for question in story] for story in stories])


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def packed(release: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz") as made:
        made.add(release, f"./{RELEASE}")
        junk = tarfile.TarInfo(f"{RELEASE}/en/._qa1_any-slug_train.txt")
        junk.size = 3
        made.addfile(junk, io.BytesIO(b"\xff\x00\xff"))
    return archive


def counts(data: Babi) -> list[int]:
    return [sum(map(len, data.splits[split])) for split in ("train", "val", "test")]


def message(*arguments: object, **options: object) -> str:
    with pytest.raises(OptionError) as caught:
        load(*arguments, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The published release


@pytest.mark.parametrize("folder", ["en", "en-10k"])
def test_published_files_have_their_questions_and_are_written_as_they_were_read(real: Path, folder: str) -> None:
    for task in TASKS:
        for part, published in (("test", 1_000), ("train", 10_000 if folder == "en-10k" else 1_000)):
            found = list((real / "babi" / RELEASE / folder).glob(f"qa{task}_*_{part}.txt"))
            if not found and (folder, task, part) == ("en-10k", 3, "train"):
                continue  # this copy of the release may lack it
            text = found[0].read_text()
            stories = parse(text, task)
            assert sum(map(len, stories)) == published
            assert write(stories) == text


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
        "en: training lacks the answer of 1 of 20000 test questions (football,apple,milk): they count as wrong"
    ]
    majority = data.majority("test")
    assert set(majority) == set(TASKS)
    assert majority[1] == pytest.approx(0.154)
    assert majority[6] == pytest.approx(0.503)


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


def test_where_a_large_training_file_is_missing_the_small_one_may_stand_in(
    real: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if list((real / "babi" / RELEASE / "en-10k").glob("qa3_*_train.txt")):
        pytest.skip("the release is complete")
    place = real / "babi"
    origin = SOURCES["babi"].origin
    assert message(3, "10k", real) == (
        f"{place}: has no en-10k/qa3_*train.txt, which the release has, {origin}; stand_in=true takes the 1k one of "
        "this task"
    )
    data = load(3, "10k", real, stand_in=True)
    assert (data.name, data.stand_ins, counts(data)) == ("en-10k", (3,), [900, 100, 1_000])
    assert "en-10k: the 1k training file stands in for that of task 3" in caplog.text
    assert load(1, "1k", real, stand_in=True).stand_ins == ()


def test_a_file_of_another_version_is_refused(real: Path, tmp_path: Path) -> None:
    source = real / "babi" / RELEASE / "en"
    train = (source / "qa1_single-supporting-fact_train.txt").read_text()
    test = put(tmp_path / "qa1_single-supporting-fact_test.txt", train)
    put(tmp_path / "qa1_single-supporting-fact_train.txt", train.replace("\n", "\r\n"))
    assert message(1, "1k", real, path=tmp_path) == (
        f"{test}: is not the file of version 1.2 (sha256 c64ba9b1a49b…, published 55acf66cef2f…): take all files from "
        "one release"
    )
    put(test, (source / "qa1_single-supporting-fact_test.txt").read_text())
    assert counts(load(1, "1k", real, path=tmp_path)) == [900, 100, 1_000], "other line ends are no other version"


# A release of our own


@pytest.mark.parametrize("size", ["1k", "10k"])
def test_a_release_is_found_wherever_it_lies(release: Path, size: str, tmp_path: Path) -> None:
    expected = load("all", size, tmp_path)
    assert counts(expected) == [20 * count for count in ((15, 5, 10) if size == "1k" else (55, 5, 10))]
    assert {question.task for question in questions(expected.splits["test"])} == set(TASKS)
    archive = packed(release, tmp_path / "copy.tar.gz")
    folder = release / ("en" if size == "1k" else "en-10k")
    for path in (release, release.parent, folder, archive):
        found = load("all", size, "/nowhere", path=path)
        assert (found.splits, found.classes) == (expected.splits, expected.classes)
    (tmp_path / "other" / "babi").mkdir(parents=True)
    archive.rename(tmp_path / "other" / "babi" / ARCHIVE)
    assert load("all", size, tmp_path / "other").splits == expected.splits


def test_training_and_validation_share_no_story_and_lose_none(release: Path, tmp_path: Path) -> None:
    data = load(7, "10k", tmp_path)
    assert data.splits["train"] + data.splits["val"] == parse(written(7, 60), 7)
    official = load(7, "1k", tmp_path, validation="official")
    assert official.splits["train"] == parse(written(7, 15), 7)
    assert official.splits["val"] == parse(written(7, 5, seed=3), 7)


def test_the_small_file_stands_in_for_a_missing_one_alone(release: Path, tmp_path: Path) -> None:
    (release / "en-10k" / "qa3_any-slug_train.txt").unlink()
    data = load("all", "10k", tmp_path, stand_in=True)
    assert data.stand_ins == (3,)
    assert counts(data) == [19 * 55 + 15, 20 * 5, 20 * 10]
    assert "en-10k/qa3_*train.txt" in message("all", "10k", tmp_path)
    assert load(4, "10k", tmp_path).stand_ins == ()


def test_vocabularies_are_those_of_training(release: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    story = "1 Ann sat in the attic.\n2 Where is Ann? \tattic\t1\n"
    put(release / "en" / "qa1_any-slug_train.txt", story * 20)
    put(release / "en" / "qa1_any-slug_test.txt", story * 5 + story.replace("Ann", "Zoe").replace("attic", "moon") * 5)
    data = load(1, "1k", tmp_path)
    assert data.vocabulary.symbols == (PADDING, UNKNOWN, ".", "?", "ann", "attic", "in", "is", "sat", "the", "where")
    assert data.classes == ("attic",)
    unknown = data.vocabulary.encode(["zoe"])[0]
    assert data.vocabulary.symbols[unknown] == UNKNOWN
    assert data.unseen_answers("test") == {"moon": 5}
    assert "training lacks the answer of 5 of 10 test questions (moon)" in caplog.text


def test_the_majority_is_that_of_each_tasks_training() -> None:
    def story(task: int, *answers: str) -> Story:
        return [Question(task, (), ("Who", "?"), answer, ()) for answer in answers]

    train = [story(1, "a", "b", "b"), story(2, "d", "c")]  # of c and d, as frequent, the first in order
    data = Babi.of("own", {"train": train, "val": [], "test": [story(1, "a", "b", "a", "b"), story(2, "c", "c", "d")]})
    assert data.majority("test") == {1: 0.5, 2: pytest.approx(2 / 3)}
    assert data.majority("train") == {1: pytest.approx(2 / 3), 2: 0.5}
    assert data.classes == ("a", "b", "c", "d")


def test_a_missing_release_is_named_with_its_place_and_origin(tmp_path: Path) -> None:
    assert message(1, "1k", tmp_path) == (
        f"{tmp_path / 'babi'}: has neither {RELEASE} nor {ARCHIVE}; `make data CORPORA=babi` fetches it from "
        "http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz (CC BY 3.0)"
    )
    assert message(1, "1k", tmp_path, path="/no/where").startswith("/no/where: has neither ")
    assert message(1, "1k", tmp_path, path=tmp_path).startswith(f"{tmp_path}: has neither ")


def test_a_missing_file_is_named(release: Path, tmp_path: Path) -> None:
    (release / "en" / "qa5_any-slug_test.txt").unlink()
    expected = f"{tmp_path / 'babi'}: has no en/qa5_*test.txt, which the release has, {SOURCES['babi'].origin}"
    assert message("all", "1k", tmp_path) == expected
    assert message(1, "10k", tmp_path, validation="official").startswith(
        f"{tmp_path / 'babi'}: has no en-valid-10k/qa1_*train.txt"
    )


def test_broken_files_are_named(release: Path, tmp_path: Path) -> None:
    path = release / "en" / "qa5_any-slug_train.txt"
    lines = written(5, 20).splitlines(keepends=True)
    put(path, "".join(lines)[:-3])
    assert message("all", "1k", tmp_path).startswith(f"{path}, line {len(lines)}: does not end: the file is cut off")
    put(path, written(5, 15))
    assert message(5, "1k", tmp_path) == (
        f"{path}: has 15 questions, and 20 were published: it is cut off, or of another size"
    )
    path.write_bytes(b"1 Ann\xff sat.\n")
    assert message(5, "1k", tmp_path) == f"{path}: is not UTF-8 at offset 5"
    assert counts(load(4, "1k", tmp_path)) == [15, 5, 10], "files of other tasks are not read"


def test_mixed_sizes_and_versions_are_named(release: Path, tmp_path: Path) -> None:
    large = release / "en-10k" / "qa2_any-slug_train.txt"
    small = release / "en" / "qa2_any-slug_train.txt"
    assert message(2, "1k", tmp_path, path=release / "en-10k") == (
        f"{large}: has 60 questions, and 20 were published: it is cut off, or of another size"
    )
    other = put(small.with_name("qa2_other-slug_train.txt"), written(2, 20))
    assert message(2, "1k", tmp_path) == f"{other}: stands beside {small}: one of them is of another version"
    other.unlink()
    put(release / "en" / "qa2_any-slug_test.txt", written(2, 15))
    assert "qa2_any-slug_test.txt: has 15 questions, and 10 were published" in message(2, "1k", tmp_path)


def test_broken_archives_are_named(release: Path, tmp_path: Path) -> None:
    archive = packed(release, tmp_path / "copy.tar.gz")
    content = archive.read_bytes()
    middle = len(content) // 2
    damaged = content[:middle] + b"?" * 500 + content[middle + 500 :]
    for broken in (b"", b"<html>moved</html>", content[:middle], content[:-4], damaged):
        archive.write_bytes(broken)
        assert message("all", "10k", tmp_path, path=archive) == f"{archive}: is not a whole .tar.gz: fetch it again"


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
def test_unknown_options(
    arguments: tuple[object, ...], options: dict[str, object], expected: str, tmp_path: Path
) -> None:
    assert message(*arguments, tmp_path, **options) == expected


@pytest.mark.parametrize("size", ["1k", "10k"])
def test_generated_questions_have_the_published_sizes(size: str, caplog: pytest.LogCaptureFixture) -> None:
    data = load_generated("all", size, seed=1)
    assert data.name == "generated"
    each = [900, 100, 1_000] if size == "1k" else [9_000, 1_000, 1_000]
    assert counts(data) == [2 * count for count in each]
    assert {question.task for question in questions(data.splits["val"])} == {1, 2}
    assert len(data.classes) == 6
    assert not caplog.records
    assert all(share < 0.25 for share in data.majority("test").values())


def test_generated_splits_differ_and_depend_on_the_seed() -> None:
    first, again, other = load_generated(1, "1k", 1), load_generated(1, "1k", 1), load_generated(1, "1k", 2)
    assert first.splits == again.splits
    assert first.splits != other.splits
    assert first.splits["test"] != first.splits["train"] + first.splits["val"]
    with pytest.raises(OptionError, match=r"^qa=3: must be an integer from 1 to 2, or all$"):
        load_generated(3, "1k", 1)
    with pytest.raises(OptionError, match=r"^size=5k: must be one of 1k, 10k$"):
        load_generated(1, "5k", 1)
