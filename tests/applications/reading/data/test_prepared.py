"""Prepared corpora of questions: equal to questions in memory, the cache, resuming, skipped examples."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils._pytree import tree_leaves

from gyral.applications.reading.data import prepared
from gyral.applications.reading.data.cloze_forms import parse_line
from gyral.applications.reading.data.encoded import EncodedQuestions
from gyral.applications.reading.data.prepared import ReadingCorpus, load, parse_examples
from gyral.applications.reading.data.questions import Question
from gyral.applications.reading.data.sources import QuestionSource
from gyral.core.errors import OptionError
from gyral.data import preparation
from gyral.data.batching import IGNORED
from gyral.data.raw_examples import Report, line_examples

PARSE = functools.partial(parse_line, edges="entities")
SIZES = {"train": 9, "val": 3, "test": 4}


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests out of the user's cache, and make the parts small."""
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user"))
    monkeypatch.setattr("gyral.data.preparation.BLOCK", 4)
    return tmp_path / "user"


def line(number: int, split: str) -> dict[str, Any]:
    """Return a question; every third one has an answer that the document does not mention."""
    return {
        "document": f"Ada Bell met {split}{number} . Boris met Ada Bell and Ada Bell left .",
        "question": "who met Boris ? XXX" if number % 2 else "XXX met Ada Bell",
        "candidates": ["Ada Bell", "Boris", "Carla"],
        "answer": "Carla" if number % 3 == 2 else number % 2,
    }


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Three splits of different questions."""
    (tmp_path / "data").mkdir()
    for split, size in SIZES.items():
        lines = [json.dumps(line(number, split)) for number in range(size)]
        (tmp_path / "data" / f"{split}.jsonl").write_text("\n".join(lines))
    return {split: tmp_path / "data" / f"{split}.jsonl" for split in SIZES}


def loaded(files: dict[str, Path], **options: Any) -> ReadingCorpus:
    sources = {
        split: QuestionSource([file], PARSE, option="path", path=file.parent, by_line=True)
        for split, file in files.items()
    }
    return load("cloze", sources, files["train"].parent, processes=1, **options)


def folders(files: dict[str, Path]) -> list[Path]:
    """Return the folders in the cache."""
    return [path for path in files["train"].parent.glob(".cache/*") if path.is_dir()]


def in_memory(file: Path) -> list[Question]:
    with file.open("rb") as lines:
        return list(parse_examples(list(line_examples(lines)), PARSE, Report()))


@pytest.mark.parametrize("vocabulary_size", [1000, 8])
def test_batches_equal_those_of_questions_in_memory(files: dict[str, Path], vocabulary_size: int) -> None:
    corpus = loaded(files, vocabulary_size=vocabulary_size)
    assert len(corpus.vocabulary) == min(vocabulary_size, 30)
    for split, file in files.items():
        questions = in_memory(file)
        if split == "train":
            questions = [question for question in questions if question.answer != IGNORED]
        expected, stored = EncodedQuestions(questions, corpus.vocabulary), corpus.splits[split]
        assert len(stored) == len(expected) == len(questions)
        assert np.array_equal(stored.lengths, expected.lengths)
        assert stored.chains == expected.chains
        for rows in (np.array([2, 0, 2]), np.arange(len(questions))):
            pairs = zip(tree_leaves(stored.batch(rows)), tree_leaves(expected.batch(rows)), strict=True)
            assert all(one.dtype == other.dtype and one.equal(other) for one, other in pairs)


def test_the_vocabulary_begins_with_the_words_of_training_by_frequency(files: dict[str, Path]) -> None:
    corpus = loaded(files)
    assert corpus.vocabulary.symbols[:4] == ("<pad>", "<unk>", "Ada", "Bell")
    assert corpus.vocabulary.symbols[-7:] == ("test0", "test1", "test2", "test3", "val0", "val1", "val2")
    assert len({*corpus.vocabulary.symbols}) == len(corpus.vocabulary)


def test_a_corpus_is_prepared_once(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first = loaded(files)
    with monkeypatch.context() as patched:
        patched.setattr(prepared, "KIND", prepared.KIND._replace(encode=None))
        assert np.array_equal(loaded(files).splits["val"].answers, first.splits["val"].answers)
    files["val"].write_text(json.dumps(line(5, "other")))
    assert len(loaded(files).splits["val"]) == 1
    assert len(folders(files)) == 2


def test_a_stopped_preparation_continues(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    write_part = preparation.write_part

    def write(path: Path, *arguments: Any, stop: int) -> None:
        if len(written) == stop:
            raise KeyboardInterrupt
        write_part(path, *arguments)
        written.append(path.name)

    monkeypatch.setattr(preparation, "write_part", functools.partial(write, stop=2))
    with pytest.raises(KeyboardInterrupt):
        loaded(files)
    monkeypatch.setattr(preparation, "write_part", functools.partial(write, stop=100))
    loaded(files)
    assert written == [
        *("train-000000.npz", "train-000001.npz", "train-000002.npz", "val-000000.npz", "test-000000.npz")
    ]
    assert len(folders(files)) == 1


@pytest.mark.parametrize("name", ["train-words.npy", "val-sizes.npy", "words.npy", "corpus.json"])
def test_a_damaged_cache_is_prepared_again(files: dict[str, Path], name: str, caplog: pytest.LogCaptureFixture) -> None:
    corpus = loaded(files)
    expected = corpus.splits["val"].batch(np.arange(3)).inputs.clone()
    path = folders(files)[0] / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert loaded(files).splits["val"].batch(np.arange(3)).inputs.equal(expected)
    assert "is damaged" in caplog.text


def test_skipped_examples_are_counted_with_their_place(files: dict[str, Path]) -> None:
    lines = ["no JSON", json.dumps({**line(1, "val"), "question": "who ?"}), json.dumps(line(2, "val"))]
    files["val"].write_text("\n".join(lines))
    report = loaded(files).reports["val"]
    assert report.kept == 1
    assert report.left_out == {
        "line that is not JSON": (1, "val.jsonl:1"),
        "whose question has no @placeholder or XXX": (1, "val.jsonl:2"),
    }
    assert report.noted == {"whose answer is none of the candidates, which counts as wrong": (1, "val.jsonl:3")}
    files["val"].write_text(lines[0])
    with pytest.raises(
        OptionError,
        match=r"^path=.*: contains no question for the split val \(0 questions; left out: 1 line that is not JSON",
    ):
        loaded(files)


def test_a_block_without_an_example_is_skipped(files: dict[str, Path]) -> None:
    content = files["val"].read_text()
    files["val"].write_text(f"{content}\n" + "no JSON\n" * 12)
    corpus = loaded(files)
    assert corpus.reports["val"].kept == SIZES["val"] == len(corpus.splits["val"])


def test_training_questions_that_have_no_answer_are_an_error(files: dict[str, Path]) -> None:
    files["train"].write_text(json.dumps(line(2, "train")))
    with pytest.raises(OptionError, match=r"train\.jsonl: the split train has no question whose answer is one of its"):
        loaded(files)
