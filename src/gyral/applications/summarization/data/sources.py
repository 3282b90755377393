"""Sources of articles with summaries, in the formats of the published corpora.

Examples that cannot be used are skipped and counted. This module does not import torch, because many worker processes
import it.
"""

import codecs
import csv
import glob
import hashlib
import io
import itertools
import json
import os
import re
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from gyral.applications.summarization.data.parsing import Fields, Pair, names_of, parse
from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.inputs import check_file, excerpt, is_packed, open_input, read_bytes, suffix_of
from gyral.data.raw_examples import (
    RawExample,
    Report,
    UnusableError,
    file_state,
    json_examples,
)

FORMS = ("jsonl", "csv", "story", "bin", "huggingface")
MODES = ("s2s", "sh2s", "s2t")
FIRST = 100  # records in which a chosen name is looked for
END = "\ufdd0"  # a line after the last one of a CSV file; Unicode has no character with this code


class ArticleSource:
    """Files, or a remote data set, with articles and summaries.

    ===========  =======================================================================================================
    form         path
    ===========  =======================================================================================================
    jsonl        file `*.jsonl` or `*.json`: on each line an object with `article` (or `story`), `highlights` (or
                 `summary`, `abstract`; a list of sentences, or a string with one sentence per line) and, optionally,
                 `title`
    csv          file `*.csv` whose header has these names
    story        folder of `.story` files; or a list of URLs `*.txt`, whose stories are named by the SHA-1 of the URL
                 and are in folders `*stories*` in the folder of the list or in its parent (Hermann et al. 2015)
    bin          files `*.bin`: chunks of See et al. (2017), with an 8-byte length before each `tf.Example`, which has
                 the features `article` and `abstract`, tokenized, with sentences of the abstract in `<s> </s>`
    huggingface  `huggingface:name:configuration:split`, with the library `datasets`
    ===========  =======================================================================================================

    A file name may be a pattern (`chunked/train_*.bin`). The path may end with a slice of the examples:
    `validation.jsonl[:900]`, `validation.jsonl[900:]`.

    Args:
        path: path in one of the forms above.
        form: format of the files; None: inferred from the path.
        mode: parts of each example that are used. "s2s": the article and its summary; "sh2s": the article with its
            paragraphs (lines) shuffled, and its summary; "s2t": the article, with its title as the
            summary. The last two require the form `jsonl`, `csv` or `huggingface`.
        source, target: names of the fields or columns of the article and of the summary (with mode "s2t", of the
            title), in the forms `jsonl`, `csv` and `huggingface`; None: the names above.
        option: name of the option that has the path, for errors.

    Raises:
        OptionError: nothing exists at the path, its form is unknown, a file cannot be read, the mode is not allowed, or
            `source` or `target` is not a name, or for a form without names.
    """

    def __init__(
        self,
        path: str | Path,
        form: str | None = None,
        mode: str = "s2s",
        source: str | None = None,
        target: str | None = None,
        option: str = "path",
    ) -> None:
        self.path = str(path)
        self.option = option
        self.mode = check_choice("mode", mode, MODES)
        found = re.fullmatch(r"(.*?)(?:\[(\d*):(\d*)\])?", self.path, re.DOTALL)
        assert found is not None, "every text matches"
        self._name = os.path.expanduser(found[1])
        self._slice = slice(*(int(number) if number else None for number in found.groups()[1:]))
        self.form = check_choice("form", form, FORMS) if form else self._infer_form()
        if mode != "s2s" and self.form in ("story", "bin"):
            reason = f"must be s2s for {self.path}, whose form has neither paragraphs nor titles"
            raise OptionError("mode", mode, reason)
        self._chosen = {"source": source, "target": target}
        self._check_names()
        self.fields = Fields.chosen(source, target, mode)
        self.files: list[Path] = []
        if self.form != "huggingface":
            self.files = self._find_files()
            if not self.files:
                raise self._error("no such file or folder, or the folder is empty")
            if self.form != "story" or self._is_list() or len(self.files) == 1:  # a bad story is skipped later
                for file in self.files:
                    check_file(self.option, self.path, file)

    def _check_names(self) -> None:
        for option, name in self._chosen.items():
            if name is not None and (not isinstance(name, str) or not name):
                raise OptionError(option, name, "must be the name of a field or column, such as document")
            if name is not None and self.form in ("story", "bin"):
                raise OptionError(option, name, f"must be null for {self.path}, whose form has no names")

    def _error(self, reason: str, file: Path | None = None) -> OptionError:
        place = "" if file is None or str(file) == self._name else f"{file}: "
        return OptionError(self.option, self.path, f"{place}{reason}")

    def _infer_form(self) -> str:
        if self._name.startswith("huggingface:"):
            return "huggingface"
        suffix = suffix_of(Path(self._name))
        forms = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".bin": "bin", ".txt": "story", ".story": "story"}
        if suffix in forms and not (suffix == ".bin" and is_packed(Path(self._name))):
            return forms[suffix]
        if os.path.isdir(self._name):
            return "bin" if any(Path(self._name).glob("*.bin")) else "story"
        raise self._error(
            "must be a .jsonl, .csv or .bin file, a folder of .story files, a list of their URLs (.txt), or "
            "huggingface:name:configuration:split"
        )

    def _find_files(self) -> list[Path]:
        path = Path(self._name)
        if os.path.isdir(path):
            return sorted(path.glob("*.story" if self.form == "story" else f"*.{self.form}"))
        return [path] if os.path.isfile(path) else [Path(name) for name in sorted(glob.glob(self._name))]

    def fingerprint(self) -> list[Any]:
        """Return values that change when the source changes: names, sizes and modification times of its files."""
        states = [(file.name, *file_state(file)) for file in self.files]
        digest = hashlib.sha256(json.dumps(states).encode()).hexdigest()
        # stories and remote data are identified by their location as well
        place = self.path if not self.files or self._is_list() else self.path[len(self._name) :]
        chosen = [self._chosen] if any(self._chosen.values()) else []
        return [self.form, self.mode, place, digest, *chosen]

    @property
    def arguments(self) -> tuple[str, str, Fields]:
        """Form, mode and names of the fields, the arguments of `parse_examples`."""
        return self.form, self.mode, self.fields

    def _is_list(self) -> bool:
        return self.form == "story" and self.files[0].suffix != ".story"

    def raw_examples(self) -> Iterator[RawExample]:
        """Yield the examples without parsing them.

        Raises:
            OptionError: a file cannot be read, a CSV file lacks a column, no example has a chosen name, a list of URLs
                has no folder of stories, or Hugging Face's `datasets` is not installed or cannot load the data.
        """
        examples = itertools.islice(self._all_examples(), self._slice.start, self._slice.stop)
        is_named = self.form in ("jsonl", "huggingface") and any(self._chosen.values())
        return self._check_first(examples) if is_named else examples

    def _check_first(self, examples: Iterator[RawExample]) -> Iterator[RawExample]:
        """Yield examples, after a look at the first ones: a name that none of them has is wrong."""
        first = [*itertools.islice(examples, FIRST)]
        found = set().union(*map(names_of, first))
        for option, name in self._chosen.items():
            if name is not None and found and name not in found:
                reason = f"must be a field of {self.path}, whose first records have {excerpt(sorted(found))}"
                raise OptionError(option, name, reason)
        yield from first
        yield from examples

    def _all_examples(self) -> Iterator[RawExample]:
        if self.form == "huggingface":
            yield from self._remote_examples()
        elif self.form == "story":
            files = self._listed_stories() if self._is_list() else self.files
            for index, file in enumerate(files):
                yield RawExample(file.name, str(file), (index + 1) / len(files))
        else:
            read_file = {"jsonl": json_examples, "csv": self._csv_examples, "bin": _bin_examples}[self.form]
            for index, file in enumerate(self.files):
                with open_input(self.option, self.path, file) as content:
                    for example in read_file(content):
                        yield example._replace(progress=(index + example.progress) / len(self.files))

    def _listed_stories(self) -> list[Path]:
        roots = [root for file in self.files for root in (file.parent, file.parent.parent)]
        found = (folder for root in roots for pattern in ("*stories*", "*/*stories*") for folder in root.glob(pattern))
        folders = [folder for folder in dict.fromkeys(found) if folder.is_dir()]
        if not folders:
            raise self._error("no folder *stories* in its folder or in the parent folder")
        names: list[str] = []
        for file in self.files:
            lines = read_bytes(self.option, self.path, file).removeprefix(codecs.BOM_UTF8).splitlines()
            names += [f"{hashlib.sha1(url).hexdigest()}.story" for line in lines if (url := line.strip())]
        return [next((folder / name for folder in folders if (folder / name).is_file()), Path(name)) for name in names]

    def _csv_examples(self, content: BinaryIO) -> Iterator[RawExample]:
        csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # articles may exceed the default of 131,072 characters
        file, size = Path(content.name), os.fstat(content.fileno()).st_size
        with io.TextIOWrapper(content, "utf-8-sig", "replace", newline="") as lines:
            reader = csv.reader(itertools.chain(lines, [END]))
            try:
                yield from self._rows(file, reader, lambda: min(1.0, content.tell() / size))
            except csv.Error as error:
                raise self._error(f"line {reader.line_num}: {error}", file) from None

    def _rows(self, file: Path, reader: Any, progress: Callable[[], float]) -> Iterator[RawExample]:
        """Yield the rows of a CSV file, whose last line must be `END`."""
        columns = next(reader)
        if columns and columns[-1].endswith(END):
            raise self._error("is empty" if columns == [END] else "its header has a quotation mark without end", file)
        for option, name in self._chosen.items():
            if name is not None and name not in columns:
                reason = f"must be a column of {file}, whose first line has {excerpt(columns)}"
                raise OptionError(option, name, reason)
        for names in (self.fields.article, (*self.fields.summary, *self.fields.title)):
            if not set(names) & set(columns):
                raise self._error(f"has columns {excerpt(columns)}, and none named {' or '.join(names)}", file)
        end = reader.line_num
        for number, row in enumerate(filter(None, reader), start=1):
            place = f"{file.name}:row {number}"
            if row == [END]:
                return
            if row[-1].endswith(END):
                lost = reader.line_num - 1 - end
                reason = f"row with a quotation mark without end, which takes in the rest of the file ({lost:,} lines)"
                yield RawExample(place, UnusableError(reason), 1.0)
                return
            end = reader.line_num
            yield RawExample(place, dict(zip(columns, row, strict=False)), progress())

    def _remote_examples(self) -> Iterator[RawExample]:
        name, _, rest = self._name.removeprefix("huggingface:").partition(":")
        configuration, _, split = rest.rpartition(":")
        datasets = import_extra("datasets", f"{self.option}={self.path}", "huggingface")
        try:
            rows = datasets.load_dataset(name, configuration or None, split=split or "train")
        except Exception as error:  # the library raises dozens of types
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise self._error(f"Hugging Face's datasets cannot load it ({reason})") from error
        for index, row in enumerate(rows):
            yield RawExample(f"{name}:{split}:{index}", row, (index + 1) / len(rows))


def _bin_examples(examples: BinaryIO) -> Iterator[RawExample]:
    name, size = Path(examples.name).name, os.fstat(examples.fileno()).st_size
    for number in itertools.count(1):
        place, position = f"{name}:{number}", examples.tell()
        head = examples.read(8)
        if not head:
            return
        length = struct.unpack("<q", head)[0] if len(head) == 8 else -1
        if not 0 <= length <= size - examples.tell():
            error = UnusableError("chunk whose rest is corrupt")
            yield RawExample(f"{place}, byte {position:,}", error, 1.0)
            return
        yield RawExample(place, examples.read(length), examples.tell() / size)


def read_pairs(
    path: str | Path, form: str | None = None, *, report: Report | None = None, **options: str | None
) -> Iterator[Pair]:
    """Yield the articles of a source with their summaries, tokenized.

    Args:
        path, form: see `ArticleSource`.
        report: counts kept and skipped examples.
        **options: further arguments of `ArticleSource`.

    Raises:
        OptionError: as `ArticleSource`.
    """
    source = ArticleSource(path, form, **options)  # type: ignore[arg-type]
    return parse_examples(source.raw_examples(), *source.arguments, Report() if report is None else report)


def parse_examples(
    examples: Iterable[RawExample], form: str, mode: str, fields: Fields, report: Report
) -> Iterator[Pair]:
    """Yield the pairs in examples, and count the kept and the skipped examples in a report."""
    for place, content, _ in examples:
        try:
            pair, notes = parse(content, form, mode, fields)
        except UnusableError as error:
            report.add(report.left_out, str(error), place)
            continue
        report.kept += 1
        for note in notes:
            report.add(report.noted, note, place)
        yield pair
