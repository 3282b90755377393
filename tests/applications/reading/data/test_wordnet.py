"""Edges between nouns and their hypernyms."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.reading.data import lambada
from gyral.applications.reading.data.babi_questions import read_questions
from gyral.applications.reading.data.cloze import load_cloze
from gyral.applications.reading.data.cloze_forms import parse_line
from gyral.applications.reading.data.lambada import DEVELOPMENT, TEST, load_lambada, parse
from gyral.applications.reading.data.wordnet import HYPERNYM, HYPONYM, Hypernyms, find, hypernym_edges
from gyral.core.edges import Edge
from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS
from gyral.data.babi import stories
from gyral.data.babi.corpus import Babi
from gyral.data.raw_examples import Report
from tests.helpers.running import build_task

MODEL = ("model=attention_sum", "cell@model.cell=mage_gru", "model.cell.hidden_size=9", "model.cell.edge_types=3")
LICENSE = "  1 This software and database is being provided to you under a license.\n"
# poodle → dog, hound → animal → being; the second sense of dog is a machine
NOUNS = (
    "00000001 03 n 01 being 0 000 | what is\n"
    "00000002 05 n 01 animal 0 001 @ 00000001 n 0000 | it moves\n"
    "00000003 05 n 02 dog 0 hound 0 002 @ 00000002 n 0000 ~ 00000004 n 0000 | it barks\n"
    "00000004 05 n 01 poodle 0 001 @ 00000003 n 0000 | a dog | with curls\n"
    "00000005 06 n 01 dog 2 000 | a machine\n"
)
INDEX = (
    "animal n 1 2 @ ~ 1 0 00000002\nbeing n 1 1 ~ 1 0 00000001\ndog n 2 2 @ ~ 2 1 00000003 00000005\n"
    "hound n 1 2 @ ~ 1 0 00000003\npoodle n 1 1 @ 1 0 00000004\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data.noun").write_text(LICENSE + NOUNS)
    (tmp_path / "index.noun.gz").write_bytes(gzip.compress((LICENSE + INDEX).encode()))
    return tmp_path


def test_nouns_are_joined_with_the_last_noun_above_and_below_them(folder: Path) -> None:
    hypernyms = Hypernyms(folder, 2)
    words = ["a", "dog", "and", "a", "poodle", "saw", "Animals", ".", "being", "poodles"]
    assert hypernym_edges(words, hypernyms, frozenset()) == (
        Edge(1, 4, HYPONYM),  # poodle is below dog
        Edge(4, 6, HYPERNYM),
        Edge(6, 8, HYPERNYM),  # and not to poodle, which is three levels below
        Edge(6, 9, HYPONYM),
    )
    assert hypernym_edges(words, hypernyms, frozenset({"animals", "being"}))[1:] == (Edge(1, 9, HYPONYM),)
    assert hypernym_edges(words, Hypernyms(folder, 1), frozenset())[-1] == Edge(1, 9, HYPONYM)


def test_passages_have_edges_of_three_types(folder: Path) -> None:
    passage, options = b"the dog met anna . anna saw an animal there", {"edges": "matches", "max_chains": 1}
    (question,) = parse(passage, "here:1", Report(), **options, hypernyms=find(folder))
    assert question.edges == (Edge(3, 6), Edge(1, 9, HYPERNYM))
    corpus = load_lambada(folder, source="generated", hypernyms=folder)
    assert {questions.edge_types for questions in corpus.splits.values()} == {3}


def test_stories_have_edges_of_three_types(folder: Path) -> None:
    told = "1 A dog met Anna.\n2 Anna is an animal.\n3 Who is a poodle? \tAnna\t2\n"
    babi = Babi.of("told", dict.fromkeys(SPLITS, stories.parse(told, 1)))
    (question,) = read_questions(babi, "test", edges="entities", entities="all", hypernyms=find(folder))
    assert question.edges == (Edge(3, 5), Edge(1, 8, HYPERNYM), Edge(8, 13, HYPONYM))
    task = build_task("task=babi_reading", *MODEL, generated=True, qa=2, hypernyms=str(folder))
    assert task.data.splits["test"].edge_types == task.edge_types == 3


def test_cloze_questions_have_edges_of_three_types(folder: Path) -> None:
    fields = {"document": "the dog met Ada", "question": "XXX saw an animal", "candidates": ["Ada"], "answer": 0}
    content = json.dumps(fields).encode()
    (question,) = parse_line(content, "here:1", Report(), edges="entities", hypernyms=find(folder))
    assert question.edges == (Edge(1, 8, HYPERNYM),)
    corpus = load_cloze(folder, source="generated", hypernyms=folder)
    assert {questions.edge_types for questions in corpus.splits.values()} == {3}


def test_another_version_of_wordnet_has_other_edges(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GYRAL_CACHE", str(folder / "user"))
    fields = {"document": "the dog met Ada", "question": "XXX saw an animal", "candidates": ["Ada"], "answer": 0}
    for name in ("train", "val", "test"):
        (folder / f"{name}.jsonl").write_text(json.dumps(fields))
    (folder / "lambada").mkdir()
    for name in (DEVELOPMENT, TEST):
        (folder / "lambada" / name).write_text("the dog met anna . anna saw an animal there with anna\n" * 2)
    monkeypatch.setattr(lambada, "CUT", 1)

    def counts() -> list[list[int]]:
        """Return the number of edges of each type in the first test question of each corpus."""
        corpora = (
            load_cloze(folder, path=folder, hypernyms=folder),
            load_lambada(folder, source="development", hypernyms=folder),
        )
        batches = [corpus.splits["test"].batch(np.arange(1)) for corpus in corpora]
        return [batch.edges.earlier.ne(0).sum(dim=(0, 1, 3)).tolist() for batch in batches if batch.edges is not None]

    assert counts() == [[0, 1, 0], [1, 1, 0]]
    (folder / "data.noun").write_text(LICENSE + NOUNS.replace("@ 00000002", "~ 00000002"))
    assert counts() == [[0, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.noun", None, "has no data.noun: must be the folder of WordNet"),
        ("data.noun", "00000001 03 n 0x being", "data.noun: not in WordNet's format"),
        ("index.noun.gz", b"no archive", "index.noun.gz: is not a complete gzip file"),
        ("index.noun.gz", gzip.compress(b"dog n 1 2 @ ~ 1 0 00000009", mtime=0), "index.noun: not in WordNet's format"),
    ],
)
def test_damaged_files_are_refused(folder: Path, name: str, content: str | bytes | None, message: str) -> None:
    path = folder / name
    path.unlink()
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(OptionError, match=message):
        Hypernyms(folder, 2)
