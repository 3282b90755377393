"""Encoded parts of a corpus."""

from pathlib import Path

from gyral.data.summaries.parsing import Report
from gyral.data.summaries.parts import read_part, write_part
from gyral.data.summaries.sources import ArticleSource, read_pairs
from tests.helpers.examples import article, write_lines


def test_a_part_gives_back_what_was_written(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [article(1), {"article": ""}, article(2)])
    write_part(tmp_path / "part.npz", list(ArticleSource(path).records()), "jsonl", "s2s")
    part = read_part(tmp_path / "part.npz")
    words = [part.words[number] for number in part.tokens]
    start = 0
    for pair, (middle, end) in zip(read_pairs(path), part.bounds.reshape(-1, 2), strict=True):
        assert words[start:middle] == pair.article
        assert words[middle:end] == [word for sentence in pair.sentences for word in (*sentence, "</s>")]
        start = end
    assert part.counts.sum() == len(words)
    assert dict(zip(part.words, part.counts.tolist(), strict=True))["met"] == 4
    assert part.report == Report(2, {"with an empty article": (1, "a.jsonl:2")})
