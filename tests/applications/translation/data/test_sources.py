"""Pairs of sentences in every form, and what is left out or refused."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gyral.applications.translation.data.sources import Pair, PairSource
from gyral.core.errors import OptionError
from gyral.data.raw_examples import Report

PAIRS = [Pair("The cat sees.", "Die Katze sieht."), Pair("A dog & a man.", "Ein Hund & ein Mann."), Pair("So?", "Äh?")]


def read(path: Any, source: int | str = 0, target: int | str = 1) -> tuple[list[Pair], Report]:
    report = Report()
    return list(PairSource(path, source, target, "train").pairs(report)), report


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def text_files(folder: Path) -> list[str]:
    sides = zip(*PAIRS, strict=True)
    lines = ["".join(f"{line}\n" for line in side) for side in sides]
    return [str(write(folder / f"train.{name}", side)) for name, side in zip(("en", "de"), lines, strict=True)]


def marked_files(folder: Path) -> list[str]:
    """Write test sets of WMT: one of them in lines, one in a single line."""
    sides = [[text.replace("&", "&amp;") for text in side] for side in zip(*PAIRS, strict=True)]
    segments = [[f'<seg id="{number}">{text}</seg>' for number, text in enumerate(side)] for side in sides]
    source = write(folder / "src.en.sgm", "<doc>\n" + "\n".join(segments[0]) + "\n</doc>")
    return [str(source), str(write(folder / "ref.de.xml", "<doc>" + "".join(segments[1]) + "</doc>"))]


def tagged_files(folder: Path) -> list[str]:
    paths = []
    for name, side in zip(("en", "de"), zip(*PAIRS, strict=True), strict=True):
        lines = [f"<title>in {name}</title>", *side[:1], " <url>a</url>", *side[1:]]
        paths.append(str(write(folder / f"train.tags.en-de.{name}", "\n".join(lines))))
    return paths


def columns(folder: Path) -> str:
    return str(write(folder / "a.tsv", "\ufeff" + "".join(f"{one}\t{other}\r\n" for one, other in PAIRS)))


def objects(folder: Path) -> str:
    nested = [{"translation": {"en": one, "de": other}} for one, other in PAIRS[:2]]
    return str(write(folder / "a.jsonl", "\n".join(map(json.dumps, [*nested, {"en": PAIRS[2][0], "de": PAIRS[2][1]}]))))


def table(folder: Path) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    nested = [{"en": one, "de": other} for one, other in PAIRS]
    parquet.write_table(pyarrow.table({"translation": nested}), folder / "a.parquet")
    return str(folder / "a.parquet")


def packed(folder: Path) -> str:
    path = Path(columns(folder))
    return str(write(folder / "a.tsv.gz", gzip.compress(path.read_bytes())))


def packed_text_files(folder: Path) -> list[str]:
    return [str(write(Path(f"{path}.gz"), gzip.compress(Path(path).read_bytes()))) for path in text_files(folder)]


def commas(folder: Path) -> str:
    with (folder / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows(PAIRS)
    return str(folder / "a.csv")


def named_commas(folder: Path) -> str:
    with (folder / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "de", "en"), *((1, other, one) for one, other in PAIRS)])
    return str(folder / "a.csv")


def named_columns(folder: Path) -> str:
    path = Path(columns(folder))
    return str(write(path, b"\xef\xbb\xbfen\tde\n" + path.read_bytes()[3:]))


def array(folder: Path) -> str:
    content = [{"translation": {"en": one, "de": other}} for one, other in PAIRS]
    return str(write(folder / "a.json", json.dumps(content, indent=2)))


def folder_of_tables(folder: Path) -> str:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for number, (one, other) in enumerate(PAIRS):
        parquet.write_table(pyarrow.table({"en": [one], "de": [other]}), folder / f"{number}.parquet")
    return str(folder)


NAMED = (objects, table, named_commas, named_columns, array, folder_of_tables)
POSITIONS = (text_files, marked_files, tagged_files, columns, packed, packed_text_files, commas)


@pytest.mark.parametrize("form", [*POSITIONS, *NAMED])
def test_every_form_has_the_same_pairs(form: Any, tmp_path: Path) -> None:
    found, report = read(form(tmp_path), *(("en", "de") if form in NAMED else (0, 1)))
    assert found == PAIRS
    assert report.kept == 3
    assert not report.left_out


def test_columns_are_chosen_and_a_path_may_end_with_a_slice(tmp_path: Path) -> None:
    path = columns(tmp_path)
    assert read(f"{path}[1:]", 1, 0)[0] == [Pair(*reversed(pair)) for pair in PAIRS[1:]]
    assert PairSource(path).fingerprint() != PairSource(f"{path}[1:]").fingerprint()
    assert PairSource(path).fingerprint() != PairSource(path, 1, 0).fingerprint()


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"a\tb\nno column\n \tb\nc\t\xff\n\nd   e\tf\n")
    found, report = read(path)
    assert found == [Pair("a", "b"), Pair("d e", "f")]
    assert report.left_out == {
        "line with too few columns": (1, "a.tsv:2"),
        "pair with an empty side": (1, "a.tsv:3"),
        "pair that is not UTF-8": (1, "a.tsv:4"),
    }
    lines = ['{"en": "a"}', "[]", "{", r'{"en": "\ud800", "de": "b"}', '{"en": "a", "de": "b"}']
    found, report = read(write(tmp_path / "a.jsonl", "\n".join(lines)), "en", "de")
    assert found == [Pair("a", "b")]
    assert {reason: count for reason, (count, _) in report.left_out.items()} == {
        "record without the texts en and de": 2,
        "line that is not JSON": 1,
        "pair that is not UTF-8": 1,
    }


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        (None, (0, 1), r"train=None: must be a pair of text files, \[train.en,train.de\], a file .tsv, "),
        ("a.txt", (0, 1), "train=a.txt: must be a pair of text files"),
        (["a"], (0, 1), r"train=\['a'\]: must be a pair of text files"),
        ("no.tsv", (0, 1), r"train=no.tsv: cannot be read \(No such file"),
        ("no.tsv", ("en", 1), "source=en: must be an integer"),
        ("no.tsv", (0, -1), "target=-1: must be an integer ≥ 0"),
        ("no.jsonl", (0, 1), "source=0: must be the name of a language for no.jsonl, such as en"),
    ],
)
def test_paths_and_fields_that_do_not_fit_are_refused(path: Any, fields: tuple[Any, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        PairSource(path, *fields, "train")


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    paths = text_files(tmp_path)
    write(Path(paths[1]), "Ein Satz.\n")
    with pytest.raises(OptionError, match=r"train.de has 1 sentences, and the other file has more"):
        read(paths)
    with pytest.raises(OptionError, match=r"a.parquet: cannot be read as .parquet"):
        read(write(tmp_path / "a.parquet", "no such form"), "en", "de")
    with pytest.raises(
        OptionError, match=r"^target=fr: must be a column of \S+a.csv, whose first line has id, de, en$"
    ):
        read(named_commas(tmp_path), "en", "fr")
    with pytest.raises(OptionError, match=r"^train=\S+a.csv: line 2: unexpected end of data$"):
        read(write(tmp_path / "a.csv", 'a,b\n"c,d\n'))
    with pytest.raises(OptionError, match=r"^train=\S+a.tsv.gz: is not a complete gzip file"):
        read(write(tmp_path / "a.tsv.gz", gzip.compress(b"a\tb\n" * 99)[:-9]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match=r"^train=\S+: must be a pair of text files"):
        read(tmp_path / "empty")
