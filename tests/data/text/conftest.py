"""Corpora of the tests."""

import hashlib
from pathlib import Path

import pytest

from gyral.core.measures import SPLITS
from gyral.data.catalogue import CATALOGUE, PublishedCorpus, PublishedFile
from gyral.data.text.corpora import TEXT_CORPORA, Corpus, TextCorpus

LETTERS = b"the quick brown fox jumps over the lazy dog " * 10


@pytest.fixture(autouse=True)
def user_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the tests out of the user's cache."""
    monkeypatch.delenv("GYRAL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "gyral"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder, empty."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


@pytest.fixture
def letters(data: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a published corpus, `letters`."""
    file = PublishedFile("letters.txt", len(LETTERS), hashlib.sha256(LETTERS).hexdigest())
    monkeypatch.setitem(CATALOGUE, "letters", PublishedCorpus((file,), ("http://example.org/letters.zip",), "free"))
    monkeypatch.setitem(TEXT_CORPORA, "letters", TextCorpus("letters", (file,), "char", bytes.decode))
    path = data / "letters" / "letters.txt"
    path.parent.mkdir()
    path.write_bytes(LETTERS)
    return path


def lengths(corpus: Corpus) -> list[int]:
    return [len(corpus.splits[split]) for split in SPLITS]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path
