"""The bAbI release as folder and archive; missing, damaged and mixed files."""

from pathlib import Path

import pytest

from gyral.data.babi.corpus import load
from gyral.data.babi.release import ARCHIVE, RELEASE, TASKS
from gyral.data.babi.stories import parse, questions, write
from gyral.data.catalogue import CATALOGUE
from tests.data.babi.conftest import counts, message, packed, put, written


@pytest.mark.parametrize("folder", ["en", pytest.param("en-10k", marks=pytest.mark.slow)])
def test_published_files_have_their_questions_and_are_written_back_unchanged(real: Path, folder: str) -> None:
    for task in TASKS:
        for part, published in (("test", 1_000), ("train", 10_000 if folder == "en-10k" else 1_000)):
            found = list((real / "babi" / RELEASE / folder).glob(f"qa{task}_*_{part}.txt"))
            if not found and (folder, task, part) == ("en-10k", 3, "train"):
                continue  # this copy of the release may lack it
            text = found[0].read_text()
            stories = parse(text, task)
            assert sum(map(len, stories)) == published
            assert write(stories) == text


def test_the_small_training_file_may_replace_a_missing_large_one(real: Path, caplog: pytest.LogCaptureFixture) -> None:
    if list((real / "babi" / RELEASE / "en-10k").glob("qa3_*_train.txt")):
        pytest.skip("the release is complete")
    place = real / "babi"
    origin = CATALOGUE["babi"].origin
    assert message(3, "10k", real) == (
        f"{place}: has no en-10k/qa3_*train.txt, which is part of the release {origin}; stand_in=true takes the "
        "1k one of this task"
    )
    data = load(3, "10k", real, stand_in=True)
    assert (data.name, data.stand_ins, counts(data)) == ("en-10k", (3,), [900, 100, 1_000])
    assert "en-10k: the 1k training file replaces the 10k file of task 3" in caplog.text
    assert load(1, "1k", real, stand_in=True).stand_ins == ()


def test_a_file_of_another_version_is_refused(real: Path, tmp_path: Path) -> None:
    source = real / "babi" / RELEASE / "en"
    train = (source / "qa1_single-supporting-fact_train.txt").read_text()
    test = put(tmp_path / "qa1_single-supporting-fact_test.txt", train)
    put(tmp_path / "qa1_single-supporting-fact_train.txt", train.replace("\n", "\r\n"))
    assert message(1, "1k", real, path=tmp_path) == (
        f"path={tmp_path}: {test}: is not the file of version 1.2 (sha256 c64ba9b1a49b…, published 55acf66cef2f…): "
        "take all files from one release"
    )
    put(test, (source / "qa1_single-supporting-fact_test.txt").read_text())
    assert counts(load(1, "1k", real, path=tmp_path)) == [900, 100, 1_000], "other line ends are no other version"


@pytest.mark.parametrize("size", [pytest.param("1k", marks=pytest.mark.slow), "10k"])
def test_a_release_is_found_in_every_supported_folder(release: Path, size: str, tmp_path: Path) -> None:
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


def test_a_missing_release_is_named_with_its_place_and_origin(tmp_path: Path) -> None:
    assert message(1, "1k", tmp_path) == (
        f"{tmp_path / 'babi'}: has neither {RELEASE} nor {ARCHIVE}; `gyral fetch babi` downloads it from "
        "http://www.thespermwhale.com/jaseweston/babi/tasks_1-20_v1-2.tar.gz (CC BY 3.0)"
    )
    assert message(1, "1k", tmp_path, path="/no/where").startswith("path=/no/where: has neither ")
    assert message(1, "1k", tmp_path, path=tmp_path).startswith(f"path={tmp_path}: has neither ")


def test_a_missing_file_is_named(release: Path, tmp_path: Path) -> None:
    (release / "en" / "qa5_any-slug_test.txt").unlink()
    expected = f"{tmp_path / 'babi'}: has no en/qa5_*test.txt, which is part of the release {CATALOGUE['babi'].origin}"
    assert message("all", "1k", tmp_path) == expected
    assert message(1, "10k", tmp_path, validation="official").startswith(
        f"{tmp_path / 'babi'}: has no en-valid-10k/qa1_*train.txt"
    )


def test_broken_files_are_named(release: Path, tmp_path: Path) -> None:
    path = release / "en" / "qa5_any-slug_train.txt"
    lines = written(5, 20).splitlines(keepends=True)
    put(path, "".join(lines)[:-3])
    assert message("all", "1k", tmp_path).startswith(f"{path}, line {len(lines)}: does not end: the file is truncated")
    put(path, written(5, 15))
    assert message(5, "1k", tmp_path) == (
        f"{path}: has 15 questions, and 20 were published: it is truncated or of another size"
    )
    path.write_bytes(b"1 Ann\xff sat.\n")
    assert message(5, "1k", tmp_path) == f"{path}: is not UTF-8 at offset 5"
    assert counts(load(4, "1k", tmp_path)) == [15, 5, 10], "files of other tasks are not read"


def test_mixed_sizes_and_versions_are_named(release: Path, tmp_path: Path) -> None:
    large = release / "en-10k" / "qa2_any-slug_train.txt"
    small = release / "en" / "qa2_any-slug_train.txt"
    folder = release / "en-10k"
    assert message(2, "1k", tmp_path, path=folder) == (
        f"path={folder}: {large}: has 60 questions, and 20 were published: it is truncated or of another size"
    )
    other = put(small.with_name("qa2_other-slug_train.txt"), written(2, 20))
    assert message(2, "1k", tmp_path) == f"{other}: is in the same folder as {small}: one of them is of another version"
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
        assert (
            message("all", "10k", tmp_path, path=archive)
            == f"path={archive}: is not a complete .tar.gz: fetch it again"
        )
