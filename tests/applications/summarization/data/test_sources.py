"""Sources of articles and summaries: every format, slices, errors, progress."""

import csv
import gzip
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from gyral.applications.summarization.data.parsing import Pair
from gyral.applications.summarization.data.sources import ArticleSource, read_pairs
from gyral.core.errors import OptionError, UserError
from gyral.data.raw_examples import Report
from tests.applications.summarization.articles import article, example, write_chunk, write_lines, write_story
from tests.faults.damages import OTHERS

CAT = Pair(["the", "cat", "sat", "."], (["it", "sat", "."], ["a", "cat", "!"]), [])


def reported(path: str | Path, **options: Any) -> tuple[list[Pair], Report]:
    report = Report()
    return list(read_pairs(path, report=report, **options)), report


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
        list(read_pairs(tmp_path / "b.csv"))


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv"])
def test_own_names_of_fields(tmp_path: Path, suffix: str) -> None:
    rows = [
        {"document": "The cat sat.", "abstract": "It sat.\nA cat!", "head": "Cat", "article": "no", "summary": "no"}
    ]
    path = tmp_path / f"a{suffix}"
    if suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[*rows[0]], [*rows[0].values()]])
    else:
        path.write_text(json.dumps(rows if suffix == ".json" else rows[0]))
    assert list(read_pairs(path, source="document", target="abstract")) == [CAT]
    titled = CAT._replace(sentences=(["cat"],), title=["cat"])
    assert list(read_pairs(path, source="document", target="head", mode="s2t")) == [titled]
    assert list(read_pairs(path, source="document")) == [CAT._replace(sentences=(["no"],))]
    states = [ArticleSource(path, source=source).fingerprint() for source in (None, "document", "article")]
    assert len({*map(str, states)}) == 3


def test_a_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", [{"document": "A cat.", "highlights": "It."}, {"document": "A cat."}])
    pairs, report = reported(lines, source="document", target="highlights")
    assert len(pairs) == 1
    assert report.left_out == {"without the field highlights": (1, "a.jsonl:2")}
    reason = r"^source=text: must be a field of \S+a\.jsonl, whose first records have document, highlights$"
    with pytest.raises(OptionError, match=reason):
        list(read_pairs(lines, source="text"))
    (tmp_path / "a.csv").write_text("document,highlights\n1,2\n")
    reason = r"^target=abstract: must be a column of \S+a\.csv, whose first line has document, highlights$"
    with pytest.raises(OptionError, match=reason):
        list(read_pairs(tmp_path / "a.csv", source="document", target="abstract"))
    chunk = write_chunk(tmp_path / "a.bin", [])
    with pytest.raises(OptionError, match=r"^source=document: must be null for \S+a\.bin, whose form has no names$"):
        ArticleSource(chunk, source="document")
    with pytest.raises(OptionError, match=r"^source=0: must be the name of a field or column, such as document$"):
        ArticleSource(tmp_path / "a.csv", source=0)  # type: ignore[arg-type]


def test_a_row_without_a_closing_quotation_mark_is_skipped(tmp_path: Path) -> None:
    rows = ['"The cat sat.","It sat.\nA cat!"\n' for _ in range(4)]
    rows[1] = rows[1].replace('cat!"', "cat!")
    (tmp_path / "a.csv").write_text("article,highlights\n" + "".join(rows[:2]) + "The cat sat.,It sat.\n" * 3)
    pairs, report = reported(tmp_path / "a.csv")
    assert pairs == [CAT]
    reason = "row with a quotation mark without end, which takes in the rest of the file (5 lines)"
    assert report.left_out == {reason: (1, "a.csv:row 2")}
    (tmp_path / "b.csv").write_text('article,"highlights\nThe cat sat.,It sat.\n')
    with pytest.raises(OptionError, match=r"b\.csv: its header has a quotation mark without end$"):
        list(read_pairs(tmp_path / "b.csv"))
    (tmp_path / "c.csv").touch()
    with pytest.raises(OptionError, match=r"c\.csv: is empty$"):
        list(read_pairs(tmp_path / "c.csv"))


def test_byte_order_marks_are_not_content(tmp_path: Path) -> None:
    line = write_lines(tmp_path / "a.jsonl", [{"article": "The cat sat.", "highlights": "It sat.\nA cat!"}])
    line.write_bytes(b"\xef\xbb\xbf" + line.read_bytes())
    assert reported(line) == ([CAT], Report(kept=1))
    story = write_story(tmp_path / "stories", "http://a", "\ufeff" + STORY)
    assert reported(story)[1] == Report(kept=1)
    (tmp_path / "all.txt").write_text("\ufeffhttp://a\n")
    assert reported(tmp_path / "all.txt")[1] == Report(kept=1)


def test_bad_stories_are_reported_and_the_others_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "stories"
    write_story(folder, "http://a", STORY)
    (folder / "b.story").symlink_to("nothing")
    os.mkfifo(folder / "c.story")
    pairs, report = reported(folder)
    assert len(pairs) == 1
    assert report.left_out == {
        "that is a link to a file that does not exist": (1, "b.story"),
        "that is a named pipe, and must be a file": (1, "c.story"),
    }
    assert ArticleSource(folder).fingerprint()


@pytest.mark.parametrize("kind", ["a named pipe", "an endless device", "a dangling link", "a directory"])
def test_other_files_must_be_files(kind: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "a_0.jsonl", [article(0)])
    OTHERS[kind](tmp_path / "a_1.jsonl")
    with pytest.raises(OptionError, match=rf"^train={tmp_path}/a_\*\.jsonl: {tmp_path}/a_1\.jsonl: ") as caught:
        ArticleSource(tmp_path / "a_*.jsonl", option="train")
    assert caught.value.option == "train"


STORY = "The cat sat\n\nIt was (nearly) gone.\n\n@highlight\n\nIt sat\n\n@highlight\n\nA cat!\n"
TOLD = ["the", "cat", "sat", ".", "it", "was", "-lrb-", "nearly", "-rrb-", "gone", "."]


def test_stories_of_a_folder_and_of_a_list(tmp_path: Path) -> None:
    first = write_story(tmp_path / "cnn" / "stories", "http://a", STORY)
    write_story(tmp_path / "dailymail" / "stories", "http://b", "No highlights.")
    expected = Pair(TOLD, CAT.sentences, [])  # periods are added where a line has none
    assert list(read_pairs(tmp_path / "cnn" / "stories")) == [expected]
    assert list(read_pairs(first)) == [expected]
    addresses = tmp_path / "lists" / "all_train.txt"
    addresses.parent.mkdir()
    addresses.write_text("http://b\nhttp://a\n\nhttp://c\n")
    pairs, report = reported(addresses)
    assert pairs == [expected]
    assert {reason: count for reason, (count, _) in report.left_out.items()} == {
        "without a summary": 1,
        "that cannot be read (No such file or directory)": 1,
    }
    assert str(report).startswith("1 pairs; left out: 1 without a summary (first ")


def test_a_list_without_stories_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "all_train.txt").write_text("http://a\n")
    with pytest.raises(
        OptionError, match=r"all_train\.txt: no folder \*stories\* in its folder or in the parent folder$"
    ):
        list(read_pairs(tmp_path / "lists" / "all_train.txt"))


def test_chunks(tmp_path: Path) -> None:
    text = {"article": "the cat sat .", "abstract": "<s> it sat . </s> <s> a cat ! </s>"}
    long = {"article": "-lrb- word " * 100, "abstract": "<s> one </s>"}
    write_chunk(tmp_path / "train_000.bin", [example(**text), example(**long)])
    write_chunk(tmp_path / "train_001.bin", [example(article="the cat sat .", abstract="it sat . a cat !")])
    expected = [CAT, Pair(["-lrb-", "word"] * 100, (["one"],), []), CAT]
    assert list(read_pairs(tmp_path)) == list(read_pairs(tmp_path / "train_*.bin")) == expected
    assert list(read_pairs(tmp_path / "train_001.bin")) == [CAT]


def test_a_path_may_select_a_slice_of_the_examples(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [article(number) for number in range(10)])
    whole = list(read_pairs(path))
    assert list(read_pairs(f"{path}[:3]")) + list(read_pairs(f"{path}[3:]")) == whole
    assert list(read_pairs(f"{path}[4:6]")) == whole[4:6]


def test_hugging_face(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load_dataset(name: str, configuration: str, split: str) -> list[dict[str, str]]:
        asked.append((name, configuration, split))
        if split == "none":
            raise ConnectionError("no network\nat all")
        return [{"article": "The cat sat.", "highlights": "It sat.\nA cat!", "id": "x"}]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert list(read_pairs("huggingface:abisee/cnn_dailymail:3.0.0:train")) == [CAT]
    assert asked == [("abisee/cnn_dailymail", "3.0.0", "train")]
    with pytest.raises(OptionError, match=r"Hugging Face's datasets cannot load it \(no network\)$"):
        list(read_pairs("huggingface:a:b:none"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        UserError, match=r"^path=huggingface:a:b:c: needs the package datasets: pip install 'gyral\[huggingface\]'$"
    ):
        list(read_pairs("huggingface:a:b:c"))


@pytest.mark.parametrize("name", ["none.jsonl", "none_*.bin", "."])
def test_missing_files_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no such file or folder, or the folder is empty"):
        ArticleSource(tmp_path / name)


def test_unknown_forms_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.xml").touch()
    with pytest.raises(OptionError, match=r"a\.xml: must be a \.jsonl, \.csv or \.bin file"):
        ArticleSource(tmp_path / "a.xml")
    with pytest.raises(OptionError, match=r"^form=xml: must be one of jsonl, csv, story, bin, huggingface$"):
        ArticleSource(tmp_path / "a.xml", "xml")


def test_progress_grows_to_one(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write_lines(tmp_path / name, [article(number) for number in range(50)])
    progress = [example.progress for example in ArticleSource(tmp_path / "*.jsonl").raw_examples()]
    assert progress == sorted(progress)
    assert progress[0] < 0.02
    assert progress[-1] == 1


def test_arrays_and_packed_files_are_the_same_as_lines(tmp_path: Path) -> None:
    articles = [article(number) for number in range(3)]
    lines = "\n".join(map(json.dumps, articles)).encode()
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "a.json").write_text(json.dumps(articles, indent=1))
    with (tmp_path / "a.csv").open("w", newline="") as file:
        rows = [
            ["\n".join(value) if isinstance(value, list) else value for value in each.values()] for each in articles
        ]
        csv.writer(file).writerows([list(articles[0]), *rows])
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    expected = reported(tmp_path / "a.jsonl")[0]
    for name in ("a.jsonl.gz", "a.json", "a.csv", "a.csv.gz"):
        assert reported(tmp_path / name)[0] == expected, name
    with pytest.raises(OptionError, match=r"must be a \.jsonl"):
        ArticleSource(tmp_path / "a.bin.gz")
