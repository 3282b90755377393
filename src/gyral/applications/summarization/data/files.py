"""Articles from any file or from standard input, and the resumable output file of generated summaries."""

import codecs
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from gyral.applications.summarization.data.parsing import Fields, Pair, parse
from gyral.applications.summarization.data.sources import ArticleSource
from gyral.core.errors import OptionError
from gyral.core.inputs import excerpt, find_fault, read_text
from gyral.data.raw_examples import RawExample, Report, UnusableError

STANDARD_INPUT = "-"


class Article(NamedTuple):
    """An article to summarize.

    Attributes:
        number: number of its example, from 1.
        place: file and line, for messages to the user.
        pair: the article, with or without a reference summary.
    """

    number: int
    place: str
    pair: Pair


def read_articles(path: str, report: Report, fields: Fields, option: str = "input") -> Iterator[Article]:
    """Yield the articles of an input; unusable examples are skipped and counted.

    Args:
        path: path of a `gyral.applications.summarization.data.sources.ArticleSource`; "-": standard input, with one
            article or with lines of JSON.
        report: counts skipped examples and the reasons.
        fields: names of the parts of an article, besides the usual ones.
        option: the option that names the input, for errors.

    Raises:
        OptionError: as `ArticleSource`.
    """
    fields = fields.or_usual()
    source = None if path == STANDARD_INPUT else ArticleSource(path, option=option)
    if source is not None:
        source.fields = fields
    form = "jsonl" if source is None else source.form
    for number, (place, content, _) in enumerate(
        _standard_input() if source is None else source.raw_examples(), start=1
    ):
        try:
            pair, notes = parse(content, form, "s2s", fields, needs_summary=False)
        except UnusableError as error:
            report.add(report.left_out, str(error), place)
            continue
        for note in notes:
            report.add(report.noted, note, place)
        yield Article(number, place, pair)


def _standard_input() -> Iterator[RawExample]:
    """Yield the lines of standard input if they are JSON, else the whole input as one article."""
    lines = (line for line in sys.stdin.buffer if line.strip())
    first = next(lines, b"").removeprefix(codecs.BOM_UTF8)
    if first.lstrip().startswith(b"{"):
        for number, line in enumerate(itertools.chain([first], lines), start=1):
            yield RawExample(f"line {number}", line, 0.0)
    else:
        text = b"".join((first, *lines)).decode(errors="replace")
        yield RawExample("standard input", {"article": text}, 1.0)


class Output:
    """Output file of generated summaries, one line of JSON each; a context manager.

    Summaries that an existing file contains are not generated again. An incomplete last line is overwritten.

    Args:
        path: path of the file; None: no file is written.

    Attributes:
        pairs: reference summary and generated summary, as lists of sentences, of every article with a reference.

    Raises (when entered):
        OptionError: the file contains other lines or cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.pairs: list[tuple[list[str], list[str]]] = []
        self._done: dict[int, dict[str, Any]] = {}  # the lines of an existing file, by article number
        self._file: Any = None

    def __enter__(self) -> "Output":
        if self.path is None:
            return self
        try:
            exists = self.path.exists()
            if exists and not self.path.is_dir() and (fault := find_fault(self.path)):
                raise OptionError("out", self.path, fault)
            content = self.path.read_bytes() if exists else b""
            complete = content[: content.rfind(b"\n") + 1]
            for line in map(json.loads, complete.splitlines()):
                if not all(isinstance(sentence, str) for sentence in line["summary"]):
                    raise TypeError("summary")
                self._done[line["number"]] = {key: line[key] for key in ("place", "summary")}
            self._file = self.path.open("ab", buffering=0)
            self._file.truncate(len(complete))
        except OSError as error:
            raise OptionError("out", self.path, f"cannot be written ({error.strerror})") from None
        except OptionError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            raise OptionError("out", self.path, "is not a file of summaries; remove it or choose another") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def remaining(self, articles: Iterable[Article]) -> Iterator[Article]:
        """Yield the articles of an input that the file does not contain.

        Raises:
            OptionError: the file is the output for another input.
        """
        for article in articles:
            done = self._done.get(article.number)
            if done is None:
                yield article
            elif done["place"] != article.place:
                place = excerpt([str(done["place"])])
                reason = f"is the output for another input, whose article {article.number} is {place}"
                raise OptionError("out", self.path, reason)
            else:
                self._add_pair(article, done["summary"])

    def add(self, article: Article, summary: list[str], score: float) -> None:
        """Write a summary.

        Args:
            article: the article.
            summary: sentences of the summary.
            score: score of the summary in the beam search.

        Raises:
            OptionError: the file cannot be written.
        """
        self._add_pair(article, summary)
        if self._file is not None:
            line = {"number": article.number, "place": article.place, "summary": summary, "score": score}
            content = json.dumps(line, ensure_ascii=False).encode() + b"\n"
            try:
                while content:  # an unbuffered write may be partial
                    content = content[self._file.write(content) :]
            except OSError as error:
                raise OptionError("out", self.path, f"cannot be written ({error.strerror})") from None

    def _add_pair(self, article: Article, summary: list[str]) -> None:
        if article.pair.sentences:
            self.pairs.append((join_words(article.pair.sentences), summary))


def read_summaries(path: str) -> dict[str, list[str]]:
    """Return the sentences of the summaries in an output file of `Output`, by the places of their articles.

    Raises:
        OptionError: the file cannot be read or has another format.
    """
    found: dict[str, list[str]] = {}
    try:
        for line in map(json.loads, read_text("beside", path).splitlines()):
            if not all(isinstance(sentence, str) for sentence in (line["place"], *line["summary"])):
                raise TypeError("summary")
            found[line["place"]] = list(line["summary"])
    except OptionError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise OptionError("beside", path, "is not a file of summaries, which out= writes") from None
    return found


def join_words(sentences: Iterable[Sequence[str]]) -> list[str]:
    """Return sentences, given as lists of words, as lines of text."""
    return [" ".join(words) for words in sentences]
