"""Articles and summaries: every form, what is left out and why, slices, modes."""

import csv
import random
import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from gyral.core.errors import OptionError
from gyral.data.summaries.articles import Pair, Report, Source, read, read_part, write_part
from tests.helpers.examples import article, example, write_chunk, write_lines, write_story

CAT = Pair(["the", "cat", "sat", "."], (["it", "sat", "."], ["a", "cat", "!"]), [])


def reported(path: str | Path, **options: Any) -> tuple[list[Pair], Report]:
    report = Report()
    return list(read(path, report=report, **options)), report


def test_json_lines(tmp_path: Path) -> None:
    lines = [
        {"article": "The cat sat.", "highlights": "It sat.\nA cat!", "id": 3},
        {"article": "The cat sat.", "highlights": ["It sat.", "A cat!"]},
        {"story": "The cat sat.", "summary": "It sat. A cat!", "title": "Cat, sitting"},
    ]
    pairs, report = reported(write_lines(tmp_path / "a.jsonl", lines))
    assert pairs == [CAT, CAT, CAT._replace(title=["cat", ",", "sitting"])]
    assert report == Report(kept=3)


def test_comma_separated_values(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.writer(file)
        rows.writerows(
            [["id", "article", "highlights"], [1, "The cat sat.", "It sat.\nA cat!"], [2], [3, "x" * 200_000]]
        )
    pairs, report = reported(tmp_path / "a.csv")
    assert pairs == [CAT]
    assert report.left_out == {
        "with an empty article": (1, "a.csv:row 2"),
        "without a summary": (1, "a.csv:row 3"),
    }
    (tmp_path / "b.csv").write_text("text,highlights\n1,2\n")
    with pytest.raises(OptionError, match=r"b\.csv: has columns text, highlights, and none named article or story$"):
        list(read(tmp_path / "b.csv"))


STORY = "The cat sat\n\nIt was (nearly) gone.\n\n@highlight\n\nIt sat\n\n@highlight\n\nA cat!\n"
TOLD = ["the", "cat", "sat", ".", "it", "was", "-lrb-", "nearly", "-rrb-", "gone", "."]


def test_stories_of_a_folder_and_of_a_list(tmp_path: Path) -> None:
    first = write_story(tmp_path / "cnn" / "stories", "http://a", STORY)
    write_story(tmp_path / "dailymail" / "stories", "http://b", "No highlights.")
    expected = Pair(TOLD, CAT.sentences, [])  # periods are added where a line has none
    assert list(read(tmp_path / "cnn" / "stories")) == [expected]
    assert list(read(first)) == [expected]
    addresses = tmp_path / "lists" / "all_train.txt"
    addresses.parent.mkdir()
    addresses.write_text("http://b\nhttp://a\n\nhttp://c\n")
    pairs, report = reported(addresses)
    assert pairs == [expected]
    assert {reason: count for reason, (count, _) in report.left_out.items()} == {
        "without a summary": 1,
        "story that is not there": 1,
    }
    assert str(report).startswith("1 pairs; left out: 1 without a summary (first ")


def test_a_list_without_stories_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "all_train.txt").write_text("http://a\n")
    with pytest.raises(OptionError, match=r"all_train\.txt: no folder \*stories\* is beside it or one level above$"):
        list(read(tmp_path / "lists" / "all_train.txt"))


def test_chunks(tmp_path: Path) -> None:
    text = {"article": "the cat sat .", "abstract": "<s> it sat . </s> <s> a cat ! </s>"}
    long = {"article": "-lrb- word " * 100, "abstract": "<s> one </s>"}
    write_chunk(tmp_path / "train_000.bin", [example(**text), example(**long)])
    write_chunk(tmp_path / "train_001.bin", [example(article="the cat sat .", abstract="it sat . a cat !")])
    expected = [CAT, Pair(["-lrb-", "word"] * 100, (["one"],), []), CAT]
    assert list(read(tmp_path)) == list(read(tmp_path / "train_*.bin")) == expected
    assert list(read(tmp_path / "train_001.bin")) == [CAT]


def test_corrupt_chunks_are_named_and_the_rest_goes_on(tmp_path: Path) -> None:
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


def test_bad_lines_are_named_and_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
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
        {**good, "article": "word " * 100_000},
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
        "whose article or story is no text": (1, "a.jsonl:10"),
    }
    assert report.noted == {
        "with an article of one word": (1, "a.jsonl:11"),
        "with an article of over 50,000 words": (1, "a.jsonl:12"),
        "with control characters, which are taken for spaces": (3, "a.jsonl:13"),
    }
    assert [len(pair.article) for pair in pairs[1:3]] == [1, 100_000]
    assert pairs[3].article == ["a", "b", "c"]
    assert "; left out: 2 line that is not JSON (first a.jsonl:2), " in str(report)


def test_a_path_may_name_some_of_the_records(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [article(number) for number in range(10)])
    whole = list(read(path))
    assert list(read(f"{path}[:3]")) + list(read(f"{path}[3:]")) == whole
    assert list(read(f"{path}[4:6]")) == whole[4:6]


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
    plain = next(read(path))
    assert shuffled[0].sentences == plain.sentences
    assert shuffled[0].article != plain.article
    paragraphs = [shuffled[0].article[start : start + 5] for start in range(0, 150, 5)]
    assert sorted(paragraphs, key=lambda words: int(words[1])) == [
        plain.article[start : start + 5] for start in range(0, 150, 5)
    ]
    assert list(read(path, mode="sh2s")) == shuffled
    assert [count for count, _ in report.left_out.values()] == [1]
    with pytest.raises(OptionError, match=r"^mode=t2s: must be one of s2s, sh2s, s2t$"):
        list(read(path, mode="t2s"))
    with pytest.raises(OptionError, match=r"^mode=s2t: must be s2s for .*, whose form has neither paragraphs nor"):
        Source(write_chunk(tmp_path / "a.bin", []), mode="s2t")


def test_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, configuration: str, split: str) -> list[dict[str, str]]:
        asked.append((name, configuration, split))
        if split == "none":
            raise ConnectionError("no network\nat all")
        return [{"article": "The cat sat.", "highlights": "It sat.\nA cat!", "id": "x"}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert list(read("huggingface:abisee/cnn_dailymail:3.0.0:train")) == [CAT]
    assert asked == [("abisee/cnn_dailymail", "3.0.0", "train")]
    with pytest.raises(OptionError, match=r"Hugging Face does not give it \(no network\)$"):
        list(read("huggingface:a:b:none"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        OptionError, match=r"^path=huggingface:a:b:c: needs Hugging Face's library: pip install datasets$"
    ):
        list(read("huggingface:a:b:c"))


@pytest.mark.parametrize("name", ["none.jsonl", "none_*.bin", "."])
def test_nothing_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no such file or folder, or nothing in it"):
        Source(tmp_path / name)


def test_unknown_forms(tmp_path: Path) -> None:
    (tmp_path / "a.xml").touch()
    with pytest.raises(OptionError, match=r"a\.xml: must be a \.jsonl, \.csv or \.bin file"):
        Source(tmp_path / "a.xml")
    with pytest.raises(OptionError, match=r"^form=xml: must be one of jsonl, csv, story, bin, huggingface$"):
        Source(tmp_path / "a.xml", "xml")


def test_progress_grows_to_one(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write_lines(tmp_path / name, [article(number) for number in range(50)])
    progress = [record.progress for record in Source(tmp_path / "*.jsonl").records()]
    assert progress == sorted(progress)
    assert progress[0] < 0.02
    assert progress[-1] == 1


def test_a_part_gives_back_what_was_written(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [article(1), {"article": ""}, article(2)])
    write_part(tmp_path / "part.npz", list(Source(path).records()), "jsonl", "s2s")
    part = read_part(tmp_path / "part.npz")
    words = [part.words[number] for number in part.tokens]
    start = 0
    for pair, (middle, end) in zip(read(path), part.bounds.reshape(-1, 2), strict=True):
        assert words[start:middle] == pair.article
        assert words[middle:end] == [word for sentence in pair.sentences for word in (*sentence, "</s>")]
        start = end
    assert part.counts.sum() == len(words)
    assert dict(zip(part.words, part.counts.tolist(), strict=True))["met"] == 4
    assert part.report == Report(2, {"with an empty article": (1, "a.jsonl:2")})
