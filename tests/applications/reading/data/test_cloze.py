"""Cloze questions: both forms of files, unusable files, and questions from highlights."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral.applications.reading.data.cloze import load_cloze
from gyral.applications.reading.data.cloze_forms import parse_file, parse_line
from gyral.applications.reading.data.highlights import parse_article
from gyral.applications.reading.data.questions import Question
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.raw_examples import Report, UnusableError

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[4] / "data"))
FILE = """http://web.archive.org/web/1234

@entity1 met @entity0 in @entity2 . @entity0 left .

@placeholder saw @entity0

@entity1

@entity0:Boris
@entity1:Ada
@entity2:Paris
"""
LINE = {
    "document": "Ada Bell met Boris in Paris . Boris left .",
    "question": ["XXX", "saw", "Boris"],
    "candidates": ["Boris", "Ada Bell", "Emre"],
    "answer": 1,
}


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests out of the user's cache."""
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "user"))


def read_line(fields: Any, **options: Any) -> Question:
    options = {"edges": "entities", **options}
    return parse_line(json.dumps(fields).encode(), "here:1", Report(), **options)[0]


def test_a_published_file_becomes_a_question(tmp_path: Path) -> None:
    (tmp_path / "a.question").write_text(FILE)
    (question,) = parse_file(str(tmp_path / "a.question"), "a.question", Report(), edges="entities")
    assert question == Question(
        "a.question",
        ("@entity1", "met", "@entity0", "in", "@entity2", ".", "@entity0", "left", "."),
        ("@begin", "@placeholder", "saw", "@entity0", "@end"),
        ("@entity1", "@entity0", "@entity2"),
        (1, 0, 2, 0, 3, 0, 2, 0, 0),
        0,
        (Edge(2, 6), Edge(6, 12)),
        (1, 0, 2, 0, 3, 0, 2, 0, 0, 0, 0, 0, 2, 0),
        1,
    )


def test_a_line_of_json_becomes_a_question() -> None:
    question = read_line(LINE)
    assert question.candidates == ("Ada Bell", "Boris")  # in the order of their mentions; Emre has none
    assert question.mentions == (1, 1, 0, 2, 0, 0, 0, 2, 0, 0)
    assert (question.answer, question.placeholder) == (0, 1)
    assert question.query == ("@begin", "@placeholder", "saw", "Boris", "@end")
    assert question.edges == (Edge(3, 7), Edge(7, 13))
    assert read_line({**LINE, "answer": "Ada  Bell"}) == question
    assert read_line({**LINE, "answer": 2}).answer == IGNORED
    assert read_line({**LINE, "document": "Ada Bell \ud800"}).document == ("Ada", "Bell", "?")
    assert read_line(LINE, edges="none") == question._replace(edges=())
    assert read_line(LINE, document_length=3).candidates == ("Ada Bell",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": "who ?"}, "whose question has no @placeholder or XXX"),
        ({"document": " "}, "with an empty document"),
        ({"document": 3}, "whose document is neither a text nor a list of words"),
        ({"candidates": "Ada"}, "whose candidates are not a list of names"),
        ({"candidates": ["Emre"], "answer": 0}, "whose document mentions no candidate"),
        ({"answer": 3}, "whose answer is neither a name nor the index of a candidate"),
    ],
)
def test_an_unusable_line_is_named(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusableError, match=f"^{reason}$"):
        read_line({**LINE, **change})


def test_an_unusable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.question").write_text("http\n\ntext\n")
    with pytest.raises(UnusableError, match=r"^without the parts of a \.question file"):
        parse_file(str(tmp_path / "a.question"), "a.question", Report(), edges="entities")
    with pytest.raises(UnusableError, match=r"^that cannot be read \(No such file"):
        parse_file(str(tmp_path / "b.question"), "b.question", Report(), edges="entities")


def test_splits_are_found_in_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cnn" / "questions"
    for split in ("training", "validation"):
        (folder / split).mkdir(parents=True)
        for number in range(3):
            (folder / split / f"{number}.question").write_text(FILE)
    with pytest.raises(OptionError, match=rf"^data_dir={tmp_path}: {folder} has no test split"):
        load_cloze(tmp_path)
    (folder / "test.jsonl").write_text(json.dumps(LINE))
    corpus = load_cloze(tmp_path)
    assert corpus.substitute == ""
    assert {split: len(questions) for split, questions in corpus.splits.items()} == {"train": 3, "val": 3, "test": 1}
    without = load_cloze(tmp_path / "data", path=folder, edges="none")
    edges = [given.splits["val"].batch(np.arange(1)).edges.earlier for given in (corpus, without)]
    assert [bool(found.any()) for found in edges] == [True, False]
    with pytest.raises(OptionError, match=r"^path=.*: must be null for source=generated"):
        load_cloze(tmp_path, path=folder, source="generated")


def test_without_files_questions_are_generated(tmp_path: Path) -> None:
    corpus = load_cloze(tmp_path)
    assert corpus.substitute.startswith(f"{tmp_path / 'cnn/questions'} does not exist: put the folders training, ")
    assert "GENERATED" in corpus.substitute
    with pytest.raises(OptionError, match=r"cnn/questions does not exist: put the folders"):
        load_cloze(tmp_path, source="published")
    other = load_cloze(tmp_path, source="generated", seed=1)
    assert "does not exist" not in other.substitute
    assert other.splits["val"].lengths.tolist() != corpus.splits["val"].lengths.tolist()


def test_highlights_become_questions() -> None:
    article = {
        "article": "(CNN) Ada Bell met Boris in Paris on Monday. Then Bell left. People like Boris.",
        "highlights": ["Ada Bell saw Boris", "Nobody was there", "Boris left", "Boris left Paris"],
    }
    content = json.dumps(article).encode()
    questions = parse_article(content, "here:1", Report(), edges="entities", seed=0)
    assert len(questions) == 2
    assert questions == parse_article(content, "here:1", Report(), edges="entities", seed=0)
    assert questions != parse_article(content, "here:1", Report(), edges="entities", seed=1)
    for question in questions:
        shown = [word if not word.startswith("@entity") else "@" for word in question.document]
        assert " ".join(shown) == "-lrb- @ -rrb- @ met @ in @ on monday . then @ left . people like @ ."
        assert question.document[3] == question.document[12]  # Bell is Ada Bell
        assert question.document[5] == question.document[17]
        assert sorted(question.candidates) == ["@entity0", "@entity1", "@entity2", "@entity3"]
        assert question.query[question.placeholder] == "@placeholder"
        assert question.candidates[question.answer] not in question.query
    with pytest.raises(UnusableError, match=r"^without a highlight that has an entity of the article$"):
        parse_article(b'{"article": "(CNN) a", "highlights": ["b"]}', "here:1", Report(), edges="none", seed=0)


@pytest.mark.slow
def test_number_of_questions_made_of_highlights() -> None:
    if not (DATA / "cnn_dailymail" / "test_first500.jsonl").exists():
        pytest.skip("no CNN / Daily Mail")
    corpus = load_cloze(DATA, source="highlights")
    assert {split: len(questions) for split, questions in corpus.splits.items()} == {
        **{"train": 1485, "val": 158, "test": 819}
    }
    assert all((questions.answers != IGNORED).all() for questions in corpus.splits.values())
