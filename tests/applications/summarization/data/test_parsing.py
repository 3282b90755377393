"""Parsing of articles and summaries: skipped and noted examples, damaged bytes, modes."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from gyral.applications.summarization.data.parsing import Pair
from gyral.applications.summarization.data.sources import ArticleSource, read_pairs
from gyral.core.errors import OptionError
from gyral.data.raw_examples import Report
from tests.applications.summarization.articles import article, example, write_chunk, write_lines

CAT = Pair(["the", "cat", "sat", "."], (["it", "sat", "."], ["a", "cat", "!"]), [])


def reported(path: str | Path, **options: Any) -> tuple[list[Pair], Report]:
    report = Report()
    return list(read_pairs(path, report=report, **options)), report


def test_corrupt_chunks_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    good = example(article="the cat sat .", abstract="<s> it sat . </s> <s> a cat ! </s>")
    broken = [b"\xff" * 40, good[:-3], b"\x0a\xff", b"", example(article="a")]
    write_chunk(tmp_path / "a.bin", [good, *broken, good])
    with (tmp_path / "a.bin").open("ab") as file:
        file.write(struct.pack("<q", 10**12) + good)
    (tmp_path / "b.bin").write_bytes(b"abc")
    (tmp_path / "c.bin").write_bytes(struct.pack("<q", -5) + good)
    write_chunk(tmp_path / "d.bin", [good])
    pairs, report = reported(tmp_path)
    assert pairs == [CAT] * 3
    assert report.left_out == {
        "corrupt tf.Example": (4, "a.bin:2"),
        "without a summary": (1, "a.bin:6"),
        "chunk whose rest is corrupt": (3, f"a.bin:8, byte {7 * 8 + 2 * len(good) + sum(map(len, broken))}"),
    }


def test_any_bytes_are_read_without_another_error(tmp_path: Path) -> None:
    generator = random.Random(0)
    good = example(article="the cat sat .", abstract="<s> it sat . </s>")
    damaged = []
    for _ in range(300):
        content = bytearray(good)
        for _ in range(3):
            content[generator.randrange(len(content))] = generator.randrange(256)
        damaged.append(bytes(content))
    _, report = reported(write_chunk(tmp_path / "a.bin", damaged))
    assert report.kept + sum(count for count, _ in report.left_out.values()) == 300
    assert 0 < report.kept < 300


def test_bad_lines_are_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    good = article(1)
    lines = [
        good,
        b"{not json",
        b"[1, 2]",
        b"",
        {**good, "article": ""},
        {**good, "article": " \n\x00"},
        {"highlights": "A b."},
        {"article": "A b."},
        {**good, "highlights": []},
        {**good, "article": 5},
        {**good, "article": "Word"},
        {**good, "article": "word " * 50_001},
        {**good, "article": "a\x00b\x1bc"},
        b'{"article": "a\xffb", "highlights": "c"}',
        b'{"article": "a \\ud800 b", "highlights": "c"}',
        b"[" * 100_000,
        good,
    ]
    pairs, report = reported(write_lines(tmp_path / "a.jsonl", lines))
    assert report.kept == len(pairs) == 7
    assert report.left_out == {
        "line that is not JSON": (2, "a.jsonl:2"),
        "line that is not a JSON object": (1, "a.jsonl:3"),
        "with an empty article": (3, "a.jsonl:5"),
        "without a summary": (2, "a.jsonl:8"),
        "whose article or story is not a text": (1, "a.jsonl:10"),
    }
    assert report.noted == {
        "with an article of one word": (1, "a.jsonl:11"),
        "with an article of over 50,000 words": (1, "a.jsonl:12"),
        "with control characters, which are taken for spaces": (3, "a.jsonl:13"),
    }
    assert [len(pair.article) for pair in pairs[1:3]] == [1, 50_001]
    assert pairs[3].article == ["a", "b", "c"]
    assert "; left out: 2 line that is not JSON (first a.jsonl:2), " in str(report)


def test_titles_and_shuffled_paragraphs(tmp_path: Path) -> None:
    told = [f"Paragraph {number} says something." for number in range(30)]
    lines = [
        {"story": "\n\n".join(told), "summary": "Short.", "title": "The title"},
        {"story": "One.", "summary": "Two."},
    ]
    path = write_lines(tmp_path / "a.jsonl", lines)
    titles, report = reported(path, mode="s2t")
    assert [pair.sentences for pair in titles] == [(["the", "title"],)]
    assert report.left_out == {"without a title": (1, "a.jsonl:2")}
    shuffled, report = reported(path, mode="sh2s")
    plain = next(read_pairs(path))
    assert shuffled[0].sentences == plain.sentences
    assert shuffled[0].article != plain.article
    paragraphs = [shuffled[0].article[start : start + 5] for start in range(0, 150, 5)]
    assert sorted(paragraphs, key=lambda words: int(words[1])) == [
        plain.article[start : start + 5] for start in range(0, 150, 5)
    ]
    assert list(read_pairs(path, mode="sh2s")) == shuffled
    assert [count for count, _ in report.left_out.values()] == [1]
    with pytest.raises(OptionError, match=r"^mode=t2s: must be one of s2s, sh2s, s2t$"):
        list(read_pairs(path, mode="t2s"))
    with pytest.raises(OptionError, match=r"^mode=s2t: must be s2s for .*, whose form has neither paragraphs nor"):
        ArticleSource(write_chunk(tmp_path / "a.bin", []), mode="s2t")
