"""Articles of any files or of standard input, and the file of their summaries, which is gone on with."""

import itertools
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from gyral.core.errors import OptionError
from gyral.data.summaries.articles import Pair, Record, Report, Source, UnusableError, Words, parse

STANDARD = "-"


class Article(NamedTuple):
    """An article: the number of its record, from 1, what names it to a user, and itself, perhaps with a summary."""

    number: int
    place: str
    pair: Pair


def read(path: str, report: Report) -> Iterator[Article]:
    """Yield the articles of an input; those that cannot be used are left out, named and counted.

    Args:
        path: of `gyral.data.summaries.articles.Source`; "-": standard input, which has an article, or lines of JSON.
        report: counts what is left out, and why.

    Raises:
        OptionError: as `Source`.
    """
    try:
        source = None if path == STANDARD else Source(path)
    except OptionError as error:
        raise OptionError(str(error).replace("path=", "input=", 1)) from None
    form = "jsonl" if source is None else source.form
    for number, (place, content, _) in enumerate(_standard_input() if source is None else source.records(), start=1):
        try:
            pair, notes = parse(content, form, "s2s", needs_summary=False)
        except UnusableError as error:
            report.add(report.left_out, str(error), place)
            continue
        for note in notes:
            report.add(report.noted, note, place)
        yield Article(number, place, pair)


def _standard_input() -> Iterator[Record]:
    """Yield its lines if they are JSON, else all of it as one article."""
    lines = (line for line in sys.stdin.buffer if line.strip())
    first = next(lines, b"")
    if first.lstrip().startswith(b"{"):
        for number, line in enumerate(itertools.chain([first], lines), start=1):
            yield Record(f"line {number}", line, 0.0)
    else:
        text = b"".join((first, *lines)).decode(errors="replace")
        yield Record("standard input", {"article": text}, 1.0)


class Output:
    """The file that summaries are written to as they come, a line of JSON each; a context manager.

    What a file has that is there already is not done again. A last line that is not whole is written anew.

    Args:
        path: of the file; None: none is written.

    Attributes:
        pairs: of the articles that came with a summary, that and the one written, earlier or now, as sentences.

    Raises (when entered):
        OptionError: it has other lines, or cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.pairs: list[tuple[list[str], list[str]]] = []
        self._done: dict[int, dict[str, Any]] = {}  # the lines that are there, by the article's number
        self._file: Any = None

    def __enter__(self) -> "Output":
        if self.path is None:
            return self
        try:
            content = self.path.read_bytes() if self.path.exists() else b""
            whole = content[: content.rfind(b"\n") + 1]
            for line in map(json.loads, whole.splitlines()):
                self._done[line["number"]] = {key: line[key] for key in ("place", "summary")}
            self._file = self.path.open("ab")
            self._file.truncate(len(whole))
        except OSError as error:
            raise OptionError(f"out={self.path}: cannot be written ({error.strerror})") from None
        except (ValueError, KeyError, TypeError):
            raise OptionError(f"out={self.path}: is no file of summaries; remove it, or choose another") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def rest(self, articles: Iterable[Article]) -> Iterator[Article]:
        """Yield those of an input's articles that the file has not.

        Raises:
            OptionError: it is the output of another input.
        """
        for article in articles:
            done = self._done.get(article.number)
            if done is None:
                yield article
            elif done["place"] != article.place:
                raise OptionError(
                    f"out={self.path}: is of another input, whose article {article.number} is {done['place']}"
                )
            else:
                self._count(article, done["summary"])

    def add(self, article: Article, summary: list[str], score: float) -> None:
        """Write a summary.

        Args:
            article: what it is of.
            summary: its sentences.
            score: that the search gives it.
        """
        self._count(article, summary)
        if self._file is not None:
            line = {"number": article.number, "place": article.place, "summary": summary, "score": score}
            self._file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
            self._file.flush()

    def _count(self, article: Article, summary: list[str]) -> None:
        if article.pair.sentences:
            self.pairs.append((joined(article.pair.sentences), summary))


def joined(sentences: Iterable[Words]) -> list[str]:
    """Return sentences as lines of text."""
    return [" ".join(words) for words in sentences]
