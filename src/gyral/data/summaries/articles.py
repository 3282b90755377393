"""Articles with summaries, in the forms in which corpora of them are passed around.

What cannot be used is left out, named and counted; the rest goes on. Nothing here imports torch: many processes do it.
"""

import csv
import glob
import hashlib
import io
import itertools
import json
import random
import re
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gyral.core.checks import check_choice
from gyral.core.errors import OptionError
from gyral.core.files import replace_when_written
from gyral.data.text.penn import CLOSING, ENDS, has_control_characters, split_sentences, tokenize

FORMS = ("jsonl", "csv", "story", "bin", "huggingface")
MODES = ("s2s", "sh2s", "s2t")
ARTICLE, SUMMARY, TITLE = ("article", "story"), ("highlights", "summary", "abstract"), ("title",)  # names of fields
PADDING, UNKNOWN, START, STOP = SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # their numbers are 0 to 3
LONG = 50_000  # words; what is longer is noted

Words = list[str]


class Pair(NamedTuple):
    """An article and its summary.

    Attributes:
        article: words and signs, in lower case.
        sentences: of the summary.
        title: empty where there is none.
    """

    article: Words
    sentences: tuple[Words, ...]
    title: Words


class Record(NamedTuple):
    """A pair as it was found, not yet read.

    Attributes:
        place: what names it to a user: file and line.
        content: what `parse` makes a pair of, by the form; an exception if there is nothing to read.
        progress: how much of the source has been read up to here, 0 to 1.
    """

    place: str
    content: Any
    progress: float


class UnusableError(Exception):
    """A record is left out; the message says why."""


@dataclass
class Report:
    """What was kept of a source, and what was not.

    Attributes:
        kept: pairs.
        left_out: how many pairs were left out for which reason, and where the first of them lies.
        noted: the same for pairs that were kept.
    """

    kept: int = 0
    left_out: dict[str, tuple[int, str]] = field(default_factory=dict)
    noted: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, counts: dict[str, tuple[int, str]], reason: str, place: str, count: int = 1) -> None:
        """Count a reason in `left_out` or `noted`."""
        before, first = counts.get(reason, (0, place))
        counts[reason] = before + count, first

    def update(self, other: "Report") -> None:
        """Add what was reported of the next part of the source."""
        self.kept += other.kept
        for mine, others in ((self.left_out, other.left_out), (self.noted, other.noted)):
            for reason, (count, first) in others.items():
                self.add(mine, reason, first, count)

    def __str__(self) -> str:
        return f"{self.kept:,} pairs{self.oddities()}"

    def oddities(self) -> str:
        """Return what was left out and noted, empty if nothing was."""
        parts = ""
        for title, counts in (("left out", self.left_out), ("kept", self.noted)):
            listed = (f"{count:,} {reason} (first {first})" for reason, (count, first) in counts.items())
            parts += f"; {title}: {', '.join(listed)}" if counts else ""
        return parts


class Source:
    """Where articles with summaries lie.

    ===========  =======================================================================================================
    form         path
    ===========  =======================================================================================================
    jsonl        file `*.jsonl` or `*.json`: on each line an object with `article` (or `story`), `highlights` (or
                 `summary`, `abstract`; a list of sentences, or a string with a sentence a line) and, perhaps, `title`
    csv          file `*.csv` whose header has these names
    story        folder of `.story` files; or list of addresses `*.txt`, whose stories, named by the SHA-1 of the
                 address, lie in folders `*stories*` beside the list or one level above (Hermann et al. 2015)
    bin          files `*.bin`: chunks of See et al. (2017), an 8-byte length before each `tf.Example`, with features
                 `article` and `abstract`, tokenized, its sentences in `<s> </s>`
    huggingface  `huggingface:name:configuration:split`, with the library `datasets`
    ===========  =======================================================================================================

    A file's name may be a pattern (`chunked/train_*.bin`), and the path may end with the numbers of records that are
    taken: `validation.jsonl[:900]`, `validation.jsonl[900:]`.

    Args:
        path: as above.
        form: None: what the path looks like.
        mode: what is taken of it. "s2s": the article and its summary; "sh2s": the article's paragraphs (lines) in
            another order, and its summary; "s2t": the article and its title, which takes the summary's place. The
            last two are for `jsonl`, `csv` and `huggingface`.

    Raises:
        OptionError: there is nothing at the path, or it looks like none of the forms; another mode.
    """

    def __init__(self, path: str | Path, form: str | None = None, mode: str = "s2s") -> None:
        self.path = str(path)
        self.mode = check_choice("mode", mode, MODES)
        found = re.fullmatch(r"(.*?)(?:\[(\d*):(\d*)\])?", self.path, re.DOTALL)
        assert found is not None, "every text matches"
        self._name = found[1]
        self._slice = slice(*(int(number) if number else None for number in found.groups()[1:]))
        self.form = check_choice("form", form, FORMS) if form else self._guess()
        if mode != "s2s" and self.form in ("story", "bin"):
            raise OptionError(f"mode={mode}: must be s2s for {self.path}, whose form has neither paragraphs nor titles")
        self.files: list[Path] = []
        if self.form != "huggingface":
            self.files = self._find()
            if not self.files:
                raise OptionError(f"path={self.path}: no such file or folder, or nothing in it")

    def _guess(self) -> str:
        if self._name.startswith("huggingface:"):
            return "huggingface"
        suffix = Path(self._name).suffix.lower()
        forms = {".jsonl": "jsonl", ".json": "jsonl", ".csv": "csv", ".bin": "bin", ".txt": "story", ".story": "story"}
        if suffix in forms:
            return forms[suffix]
        if Path(self._name).is_dir():
            return "bin" if any(Path(self._name).glob("*.bin")) else "story"
        raise OptionError(
            f"path={self.path}: must be a .jsonl, .csv or .bin file, a folder of .story files, a list of their "
            "addresses (.txt), or huggingface:name:configuration:split"
        )

    def _find(self) -> list[Path]:
        path = Path(self._name)
        if path.is_dir():
            return sorted(path.glob("*.story" if self.form == "story" else f"*.{self.form}"))
        return [path] if path.is_file() else [Path(name) for name in sorted(glob.glob(self._name))]

    def fingerprint(self) -> list[Any]:
        """Return what changes when the source does: names, sizes and times of its files."""
        states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in self.files]
        digest = hashlib.sha256(json.dumps(states).encode()).hexdigest()
        # where stories or remote data lie is part of what they are
        place = self.path if not self.files or self._is_list() else self.path[len(self._name) :]
        return [self.form, self.mode, place, digest]

    def _is_list(self) -> bool:
        return self.form == "story" and self.files[0].suffix != ".story"

    def records(self) -> Iterator[Record]:
        """Yield the records, each a pair not yet read.

        Raises:
            OptionError: a CSV file lacks a column, no folder of stories is beside a list, or Hugging Face's `datasets`
                is not installed or does not give the data.
        """
        return itertools.islice(self._all_records(), self._slice.start, self._slice.stop)

    def _all_records(self) -> Iterator[Record]:
        if self.form == "huggingface":
            yield from self._remote()
        elif self.form == "story":
            yield from self._stories()
        else:
            read = {"jsonl": _lines, "csv": _rows, "bin": _chunk}[self.form]
            for index, file in enumerate(self.files):
                for record in read(file):
                    yield record._replace(progress=(index + record.progress) / len(self.files))

    def _stories(self) -> Iterator[Record]:
        files = self.files
        if self._is_list():
            roots = [root for file in files for root in (file.parent, file.parent.parent)]
            found = (
                folder for root in roots for pattern in ("*stories*", "*/*stories*") for folder in root.glob(pattern)
            )
            folders = [folder for folder in dict.fromkeys(found) if folder.is_dir()]
            if not folders:
                raise OptionError(f"path={self.path}: no folder *stories* is beside it or one level above")
            names = [
                f"{hashlib.sha1(address.strip()).hexdigest()}.story"
                for file in files
                for address in file.read_bytes().splitlines()
                if address.strip()
            ]
            files = [
                next((folder / name for folder in folders if (folder / name).is_file()), Path(name)) for name in names
            ]
        for index, file in enumerate(files):
            yield Record(file.name, str(file), (index + 1) / len(files))

    def _remote(self) -> Iterator[Record]:
        name, _, rest = self._name.removeprefix("huggingface:").partition(":")
        configuration, _, split = rest.rpartition(":")
        try:
            import datasets
        except ImportError:
            raise OptionError(f"path={self.path}: needs Hugging Face's library: pip install datasets") from None
        try:
            rows = datasets.load_dataset(name, configuration or None, split=split or "train")
        except Exception as error:  # it has dozens of kinds, those of three libraries
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise OptionError(f"path={self.path}: Hugging Face does not give it ({reason})") from error
        for index, row in enumerate(rows):
            yield Record(f"{name}:{split}:{index}", row, (index + 1) / len(rows))


def read(
    path: str | Path, form: str | None = None, *, mode: str = "s2s", report: Report | None = None
) -> Iterator[Pair]:
    """Yield the articles of a source with their summaries, tokenized.

    Args:
        path, form, mode: see `Source`.
        report: counts what is kept and what is left out, and why.

    Raises:
        OptionError: as `Source`.
    """
    source = Source(path, form, mode)
    return _pairs(source.records(), source.form, mode, Report() if report is None else report)


def _pairs(records: Iterator[Record], form: str, mode: str, report: Report) -> Iterator[Pair]:
    for place, content, _ in records:
        try:
            pair, notes = parse(content, form, mode)
        except UnusableError as error:
            report.add(report.left_out, str(error), place)
            continue
        report.kept += 1
        for note in notes:
            report.add(report.noted, note, place)
        yield pair


def parse(content: Any, form: str, mode: str, needs_summary: bool = True) -> tuple[Pair, list[str]]:
    """Return the pair that a record's content has, and what is odd about it.

    Args:
        content, form, mode: of the record and its source.
        needs_summary: whether an article without one is no pair.

    Raises:
        UnusableError: there is no pair in it.
    """
    if isinstance(content, Exception):
        raise content
    if form == "bin":
        pair, texts = _parse_example(content)
    elif form == "story":
        pair, texts = _parse_story(content)
    else:
        pair, texts = _parse_fields(_load_line(content) if isinstance(content, bytes) else content, mode)
    if not pair.article:
        raise UnusableError("with an empty article")
    if needs_summary and not any(pair.sentences):
        raise UnusableError("without a title" if mode == "s2t" else "without a summary")
    notes = {
        "with control characters, which are taken for spaces": any(map(has_control_characters, texts)),
        "with an article of one word": len(pair.article) == 1,
        f"with an article of over {LONG:,} words": len(pair.article) > LONG,
    }
    return pair, [note for note, holds in notes.items() if holds]


def _lines(file: Path) -> Iterator[Record]:
    size, position = file.stat().st_size, 0
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            position += len(line)
            if line.strip():
                yield Record(f"{file.name}:{number}", line, position / size)


def _rows(file: Path) -> Iterator[Record]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))  # an article may have more than the usual 131,072 characters
    size = file.stat().st_size
    with file.open("rb") as content, io.TextIOWrapper(content, "utf-8-sig", "replace", newline="") as lines:
        rows = csv.DictReader(lines)
        columns = [name for name in rows.fieldnames or () if name]
        for names in (ARTICLE, (*SUMMARY, *TITLE)):
            if not set(names) & set(columns):
                raise OptionError(f"path={file}: has columns {', '.join(columns)}, and none named {' or '.join(names)}")
        for number, row in enumerate(rows, start=1):
            yield Record(f"{file.name}:row {number}", row, content.tell() / size)


def _chunk(file: Path) -> Iterator[Record]:
    size = file.stat().st_size
    with file.open("rb") as examples:
        for number in itertools.count(1):
            place, position = f"{file.name}:{number}", examples.tell()
            head = examples.read(8)
            if not head:
                return
            length = struct.unpack("<q", head)[0] if len(head) == 8 else -1
            if not 0 <= length <= size - examples.tell():
                error = UnusableError("chunk whose rest is corrupt")
                yield Record(f"{place}, byte {position:,}", error, 1.0)
                return
            yield Record(place, examples.read(length), examples.tell() / size)


def _load_line(line: bytes) -> Any:
    try:
        return json.loads(line.decode(errors="replace"), strict=False)  # control characters are dealt with later
    except (ValueError, RecursionError):
        raise UnusableError("line that is not JSON") from None


def _parse_fields(fields: Any, mode: str) -> tuple[Pair, list[str]]:
    if not isinstance(fields, Mapping):
        raise UnusableError("line that is not a JSON object")
    article, summary, title = (_take(fields, names) for names in (ARTICLE, SUMMARY, TITLE))
    if mode == "sh2s":
        article = _shuffle(article)
    title_words = tokenize("\n".join(title))
    sentences = (title_words,) if mode == "s2t" else tuple(words for line in summary if (words := tokenize(line)))
    if mode != "s2t" and len(sentences) == 1:  # one line of text
        sentences = tuple(split_sentences(sentences[0]))
    return Pair(tokenize("\n".join(article)), sentences, title_words), [*article, *summary, *title]


def _take(fields: Mapping[str, Any], names: tuple[str, ...]) -> list[str]:
    """Return the lines of the first of these fields that there is."""
    value = next((fields[name] for name in names if fields.get(name) is not None), "")
    texts = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise UnusableError(f"whose {' or '.join(names)} is no text")
    return [line for text in texts for line in text.split("\n") if line.strip()]


def _shuffle(paragraphs: list[str]) -> list[str]:
    """Return paragraphs in another order, which depends on what they say alone."""
    if len(paragraphs) < 2:
        raise UnusableError("with fewer than two paragraphs (lines), which cannot be shuffled")
    generator = random.Random("\n".join(paragraphs))
    keys = [generator.random() for _ in paragraphs]  # of the module's methods the one whose sequence is promised
    return [paragraph for _, paragraph in sorted(zip(keys, paragraphs, strict=True))]


def _parse_story(path: str) -> tuple[Pair, list[str]]:
    try:
        text = Path(path).read_bytes().decode(errors="replace")
    except OSError:
        raise UnusableError("story that is not there") from None
    before, *highlights = re.split(r"^\s*@highlight\s*$", text, flags=re.MULTILINE)
    article = [word for line in before.split("\n") for word in _ended(tokenize(line))]
    sentences = tuple(words for highlight in highlights if (words := _ended(tokenize(highlight))))
    return Pair(article, sentences, []), [text]


def _ended(words: Words) -> Words:
    """Return a line's words with a period where it has no end (See et al. 2017)."""
    return [*words, "."] if words and words[-1] not in (*ENDS, *CLOSING) else words


def _parse_example(example: bytes) -> tuple[Pair, list[str]]:
    """Read a `tf.Example`: its field 1 has in its fields 1 the entries of a map, each a name and a list of bytes."""
    features: dict[bytes, bytes] = {}
    try:
        for message in _fields(example, 1):
            for entry in _fields(message, 1):
                values = [value for kind in _fields(entry, 2) for lst in _fields(kind, 1) for value in _fields(lst, 1)]
                for name in _fields(entry, 1):
                    features[name] = b" ".join(values)
    except (IndexError, ValueError):
        raise UnusableError("corrupt tf.Example") from None
    if not features:
        raise UnusableError("corrupt tf.Example")
    article, abstract = (features.get(name, b"").decode(errors="replace") for name in (b"article", b"abstract"))
    marked = re.findall(rf"{START}(.*?){STOP}", abstract)
    sentences = [_split(sentence) for sentence in marked] if marked else split_sentences(_split(abstract))
    return Pair(_split(article), tuple(words for words in sentences if words), []), [article, abstract]


def _split(text: str) -> Words:
    """Return the words of a tokenized text; those that stand for something else here are left out."""
    if has_control_characters(text):
        return tokenize(text)
    return [word for word in text.lower().split() if word not in SPECIAL]


def _fields(message: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the values of a protobuf message's fields of one number, those that are messages or bytes.

    Raises:
        IndexError, ValueError: it is no protobuf message.
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            _, position = _varint(message, position)
            continue
        if wire not in (1, 2, 5) or number == 0:
            raise ValueError(wire)
        length, position = _varint(message, position) if wire == 2 else ({1: 8, 5: 4}[wire], position)
        if position + length > len(message):
            raise IndexError(length)
        if number == wanted and wire == 2:
            yield message[position : position + length]
        position += length


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number that starts at a position, seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError(value)


class Part(NamedTuple):
    """Encoded pairs, with numbers of words of their own.

    Attributes:
        words: those that occur, and `STOP`, all different.
        counts: (w,) how often each occurs.
        tokens: (n,) numbers in `words`: of each pair its article and then its summary, `STOP` behind each sentence.
        bounds: (2p,) where each article and each summary ends.
        report: on what was kept and left out.
    """

    words: list[str]
    counts: np.ndarray
    tokens: np.ndarray
    bounds: np.ndarray
    report: Report


def write_part(path: Path, records: list[Record], form: str, mode: str) -> None:
    """Encode some records into a file, which is there whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    report = Report()
    index = {STOP: 0}
    tokens: list[int] = []
    bounds: list[int] = []
    for pair in _pairs(iter(records), form, mode, report):
        tokens += [index.setdefault(word, len(index)) for word in pair.article]
        bounds.append(len(tokens))
        for sentence in pair.sentences:
            tokens += [index.setdefault(word, len(index)) for word in sentence]
            tokens.append(0)
        bounds.append(len(tokens))
    numbers = np.array(tokens, dtype=np.uint32)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(
                file,
                words=np.frombuffer("\n".join(index).encode(), dtype=np.uint8),
                counts=np.bincount(numbers, minlength=len(index)),
                tokens=numbers,
                bounds=np.array(bounds, dtype=np.int64),
                report=np.frombuffer(json.dumps(asdict(report)).encode(), dtype=np.uint8),
            )

    replace_when_written(path, write)


def restore_report(saved: Mapping[str, Any]) -> Report:
    """Return the report that `dataclasses.asdict` was called on, also by way of JSON."""
    counted = {
        name: {reason: (count, first) for reason, (count, first) in saved[name].items()}
        for name in ("left_out", "noted")
    }
    return Report(saved["kept"], **counted)


def read_part(path: Path) -> Part:
    """Read what `write_part` wrote."""
    with np.load(path) as arrays:
        words = arrays["words"].tobytes().decode().split("\n")
        report = restore_report(json.loads(arrays["report"].tobytes()))
        return Part(words, arrays["counts"], arrays["tokens"], arrays["bounds"], report)
