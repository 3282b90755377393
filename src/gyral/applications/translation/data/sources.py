"""Pairs of sentences in two languages, in the forms in which parallel corpora are published."""

import csv
import html
import io
import itertools
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.inputs import check_file, excerpt, open_input, path_of, suffix_of
from gyral.data.arrays import check_parquet
from gyral.data.raw_examples import Report, UnusableError, file_state, json_examples, line_examples, load_line

PARALLEL = (
    "a pair of text files, [train.en,train.de], a file .tsv, .csv, .jsonl, .json or .parquet with both languages, or a "
    "folder of .parquet files"
)
FORMS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
SEGMENT = re.compile(rb"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)
TAGGED = "train.tags."  # how the names of IWSLT's training files begin, which have tags between the sentences
ROWS = 1000  # rows of a Parquet file that are read at once


# Where a pair stands, and a function that returns both texts or raises `UnusableError`.
RawPair: TypeAlias = tuple[str, Callable[[], tuple[Any, ...]]]


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


class PairSource:
    """The pairs of a split.

    ============  ======================================================================================================
    form          files
    ============  ======================================================================================================
    text          two files with a sentence on each line, `[train.en, train.de]`: the form of WMT, of OPUS (Moses), and
                  of the scripts of fairseq for WMT and IWSLT. In files of IWSLT whose names begin with `train.tags.`,
                  lines with a tag are left out
    sgm, xml      two such files with a sentence in each element `<seg>`, the test sets of WMT
                  (`newstest2013-src.en.sgm`, `newstest2013-ref.de.sgm`) and of IWSLT
    tsv, csv      one file whose columns are separated by tabs, or by commas with quotes
    jsonl, json   one file with an object on each line, or with an array of objects, `{"translation": {"en": …, "de":
                  …}}`: what the data sets wmt14 and iwslt2017 of Hugging Face are as lines of JSON; the two texts may
                  also be fields of the object
    parquet       one file, or a folder of files in the order of their names, with a column `translation`, the form in
                  which Hugging Face stores them, or with a column for each language
    ============  ======================================================================================================

    A path of one file may end with a slice of its pairs: `train.tsv[:900]`. A file may be packed: `train.tsv.gz`.

    Args:
        path: path of one file, or two paths: of the sources and of their translations.
        source, target: columns of a .tsv or .csv file, from 0, or their names in its first line; or fields of the other
            forms, which are names of languages.
        option: name of the option that has the path, for errors.

    Raises:
        OptionError: a file does not exist or its form is unknown, or `source` and `target` do not fit the form.
    """

    def __init__(self, path: Any, source: int | str = 0, target: int | str = 1, option: str = "path") -> None:
        self.option = option
        self.path = str(path)
        self.fields = (source, target)
        self._slice = slice(None)
        if isinstance(path, list | tuple):
            if len(path) != 2:
                raise self._error(f"must be {PARALLEL}")
            self.files = [path_of(file) for file in path]
            self.form = "text"
        else:
            found = re.fullmatch(r"(.*?)(?:\[(\d*):(\d*)\])?", self.path, re.DOTALL)
            assert found is not None, "every text matches"
            self._slice = slice(*(int(number) if number else None for number in found.groups()[1:]))
            self.files = [path_of(found[1])]
            self.form = FORMS.get(suffix_of(self.files[0]), "")
            if self.files[0].is_dir():
                self.files = sorted(self.files[0].glob("*.parquet"))
                self.form = "parquet" if self.files else ""
            if not self.form:
                raise self._error(f"must be {PARALLEL}")
            self._check_fields()
        for file in self.files:
            check_file(option, self.path, file)

    def _error(self, reason: str) -> OptionError:
        return OptionError(self.option, self.path, reason)

    def _check_fields(self) -> None:
        named = self.form in ("tsv", "csv") and all(isinstance(field, str) for field in self.fields)
        for name, field in zip(("source", "target"), self.fields, strict=True):
            if self.form in ("tsv", "csv") and not named:
                check_integer(name, field, minimum=0)
            elif not isinstance(field, str):
                raise OptionError(name, field, f"must be the name of a language for {self.path}, such as en")

    def fingerprint(self) -> list[Any]:
        """Return values that change when the source changes: names, sizes and modification times of its files."""
        states = [(file.name, *file_state(file)) for file in self.files]
        return [self.form, states, list(self.fields), [self._slice.start, self._slice.stop]]

    def pairs(self, report: Report) -> Iterator[Pair]:
        """Yield the pairs. Those that cannot be used are skipped and counted in the report.

        Raises:
            OptionError: a file cannot be read, or two files do not have the same number of sentences.
        """
        read = {"text": self._text_pairs, "parquet": self._parquet_pairs}.get(self.form, self._file_pairs)
        for place, found in itertools.islice(read(), self._slice.start, self._slice.stop):
            try:
                pair = Pair(*(_clean(part) for part in found()))
            except UnusableError as error:
                report.add(report.left_out, str(error), place)
                continue
            report.kept += 1
            yield pair

    def _text_pairs(self) -> Iterator[RawPair]:
        ends = object()
        with (
            open_input(self.option, self.path, self.files[0]) as one,
            open_input(self.option, self.path, self.files[1]) as other,
        ):
            sides = (_sentences(self.files[0], one), _sentences(self.files[1], other))
            for number, found in enumerate(itertools.zip_longest(*sides, fillvalue=ends), start=1):
                if ends in found:
                    shorter = self.files[found.index(ends)].name
                    raise self._error(f"{shorter} has {number - 1:,} sentences, and the other file has more")
                yield f"{self.files[0].name}:{number}", partial(tuple, found)

    def _file_pairs(self) -> Iterator[RawPair]:
        with open_input(self.option, self.path, self.files[0]) as content:
            if self.form == "jsonl":
                for example in json_examples(content):
                    yield example.place, partial(self._objects, example.content)
                return
            columns: tuple[int | str, ...] = self.fields
            for place, row in self._rows(content):
                if any(isinstance(column, str) for column in columns):  # the first line has their names
                    columns = self._find_columns(row)
                else:
                    yield place, partial(_columns, row, columns)

    def _rows(self, content: BinaryIO) -> Iterator[tuple[str, list[Any]]]:
        """Yield the place and the columns of each line of a .tsv file, or of each row of a .csv file."""
        if self.form == "tsv":
            for example in line_examples(content):
                yield example.place, example.content.rstrip(b"\r\n").split(b"\t")
            return
        csv.field_size_limit(2**31 - 1)
        with io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="") as lines:
            reader = csv.reader(lines, strict=True)
            try:
                for row in filter(None, reader):
                    yield f"{self.files[0].name}:{reader.line_num}", row
            except csv.Error as error:
                raise self._error(f"line {reader.line_num}: {error}") from None

    def _find_columns(self, row: list[Any]) -> tuple[int | str, ...]:
        names = [name.decode(errors="replace") if isinstance(name, bytes) else name for name in row]
        for option, field in zip(("source", "target"), self.fields, strict=True):
            if field not in names:
                reason = f"must be a column of {self.path}, whose first line has {excerpt(names)}"
                raise OptionError(option, field, reason)
        return tuple(names.index(str(field)) for field in self.fields)

    def _objects(self, line: bytes) -> tuple[Any, ...]:
        return self._texts(load_line(line))

    def _texts(self, content: Any) -> tuple[Any, ...]:
        found = content.get("translation", content) if isinstance(content, dict) else None
        if not isinstance(found, dict) or not all(isinstance(found.get(field), str) for field in self.fields):
            raise UnusableError(f"record without the texts {self.fields[0]} and {self.fields[1]}")
        return tuple(found[field] for field in self.fields)

    def _parquet_pairs(self) -> Iterator[RawPair]:
        import_extra("pyarrow", f"task.corpus.{self.option}={self.path}", "parquet")
        from pyarrow import parquet

        for path in self.files:
            numbers = itertools.count(1)
            place = "" if len(self.files) == 1 else f"{path.name}: "
            try:
                with parquet.ParquetFile(path) as file:
                    check_parquet(file.metadata, path.stat().st_size)
                    names = file.schema_arrow.names
                    columns = ["translation"] if "translation" in names else [*map(str, self.fields)]
                    if not set(columns) <= set(names):
                        reason = f"has columns {excerpt(names)}, and none named translation or {' and '.join(columns)}"
                        raise self._error(f"{place}{reason}")
                    for batch in file.iter_batches(ROWS, columns=columns):
                        for content in batch.to_pylist():
                            yield f"{path.name}:row {next(numbers)}", partial(self._texts, content)
            except (OSError, ValueError) as error:  # those of pyarrow among them
                if isinstance(error, OptionError):
                    raise
                raise self._error(f"{place}cannot be read as .parquet: {str(error).splitlines()[0]}") from error


def _columns(row: list[Any], columns: tuple[int | str, ...]) -> tuple[Any, ...]:
    if len(row) <= max(int(column) for column in columns):
        raise UnusableError("line with too few columns")
    return tuple(row[int(column)] for column in columns)


def _sentences(file: Path, content: BinaryIO) -> Iterator[bytes]:
    """Yield the sentences of one language."""
    if suffix_of(file) in (".sgm", ".sgml", ".xml"):
        for line in content:
            for found in SEGMENT.findall(line):
                yield html.unescape(found.decode(errors="surrogateescape")).encode(errors="surrogateescape")
    elif file.name.startswith(TAGGED):
        yield from (line for line in content if not line.lstrip().startswith(b"<"))
    else:
        yield from content


def _clean(text: str | bytes) -> str:
    """Return a sentence with single spaces.

    Raises:
        UnusableError: the text is empty, or not UTF-8.
    """
    try:
        found = text.decode() if isinstance(text, bytes) else text
        found.encode()  # JSON may have half of a surrogate pair
    except UnicodeError:
        raise UnusableError("pair that is not UTF-8") from None
    if not (words := found.removeprefix("\ufeff").split()):
        raise UnusableError("pair with an empty side")
    return " ".join(words)
