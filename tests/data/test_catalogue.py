"""The catalogue: complete entries, and derived files that equal the published ones."""

import hashlib
import os
from pathlib import Path

import pytest

from gyral.data.catalogue import CATALOGUE, PublishedFile, has_file, to_characters

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[2] / "data"))


def test_characters_of_a_line() -> None:
    assert to_characters(b" no it 's \n a \n") == b"n o _ i t _ ' s \n a \n "


def test_the_penn_treebank_by_characters_is_derived_byte_for_byte() -> None:
    corpus = CATALOGUE["ptb"]
    for words, characters in zip(corpus.files, corpus.derived, strict=True):
        path = DATA / "ptb" / words.name
        if not path.is_file():
            pytest.skip(f"no ptb/{words.name} in {DATA} (set DATA_DIR)")
        assert has_file(path.parent, words)
        content = to_characters(path.read_bytes())
        assert PublishedFile(characters.name, len(content), hashlib.sha256(content).hexdigest()) == characters


def test_entries_are_complete() -> None:
    for corpus in CATALOGUE.values():
        assert corpus.license
        assert all(url.startswith("http") for url in corpus.urls)
        for file in corpus.files + corpus.derived:
            assert file.size > 0
            assert len(file.sha256) == 64
        assert len(corpus.derived) in (0, len(corpus.files))
