"""Encoded parts of a corpus."""

from pathlib import Path

import pytest

from gyral.applications.summarization.data.corpus import encode
from gyral.applications.summarization.data.sources import ArticleSource, read_pairs
from gyral.data.preparation import read_part, write_part
from gyral.data.raw_examples import DamagedPartError, Report
from tests.applications.summarization.articles import article, write_lines


def test_a_part_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [article(1), {"article": ""}, article(2)])
    write_part(tmp_path / "part.npz", encode, list(ArticleSource(path).raw_examples()), *ArticleSource(path).arguments)
    part = read_part(tmp_path / "part.npz")
    words = [part.symbols[number] for number in part.arrays["words"]]
    start = 0
    for pair, (middle, end) in zip(read_pairs(path), part.arrays["lengths"].cumsum().reshape(-1, 2), strict=True):
        assert words[start:middle] == pair.article
        assert words[middle:end] == [word for sentence in pair.sentences for word in (*sentence, "</s>")]
        start = end
    assert start == len(words)
    assert words.count("met") == 4
    assert part.report == Report(2, {"with an empty article": (1, "a.jsonl:2")})


def test_a_damaged_part_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [article(1)])
    part = tmp_path / "part.npz"
    write_part(part, encode, list(ArticleSource(path).raw_examples()), *ArticleSource(path).arguments)
    whole = part.read_bytes()
    place = whole.index(b"name1")  # in the words
    for content in (b"", whole[:-30], whole[:place] + b"game1" + whole[place + 5 :]):
        part.write_bytes(content)
        with pytest.raises(DamagedPartError, match=rf"^{part}: is damaged \(.+\): remove it and run"):
            read_part(part)
