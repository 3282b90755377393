"""Parsing of articles with summaries: the content of one example becomes a tokenized pair.

This module does not import torch, because many worker processes import it.
"""

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gyral.data.raw_examples import (
    ARTICLE,
    SUMMARY,
    TITLE,
    RawExample,
    UnusableError,
    field_lines,
    file_text,
    load_line,
)
from gyral.data.text.penn import CLOSING, ENDS, has_control_characters, split_sentences, tokenize
from gyral.data.vocabulary import PADDING, UNKNOWN

START, STOP = "<s>", "</s>"
SPECIAL = (PADDING, UNKNOWN, START, STOP)  # symbols with the numbers 0 to 3
LONG = 50_000  # words; the report notes longer articles


class Fields(NamedTuple):
    """The names of the parts of an example in a form with names. The first name that an example has counts."""

    article: tuple[str, ...] = ARTICLE
    summary: tuple[str, ...] = SUMMARY
    title: tuple[str, ...] = TITLE

    @classmethod
    def chosen(cls, source: str | None, target: str | None, mode: str) -> "Fields":
        """Return the names that a user has chosen for the two parts that a mode uses; None: the usual names."""
        own = {} if source is None else {"article": (source,)}
        part = "title" if mode == "s2t" else "summary"
        return cls(**(own if target is None else {**own, part: (target,)}))

    def or_usual(self) -> "Fields":
        """Return the names with the usual ones behind them."""
        return Fields(*((*names, *usual) for names, usual in zip(self, Fields(), strict=True)))

    def missing(self, example: Mapping[str, Any]) -> list[str]:
        """Return the chosen names, in place of which no other name counts, that an example lacks."""
        pairs = zip(self, Fields(), strict=True)
        return [names[0] for names, usual in pairs if names != usual and len(names) == 1 and names[0] not in example]


class Pair(NamedTuple):
    """An article and its summary.

    Attributes:
        article: words and punctuation marks, in lower case.
        sentences: the sentences of the summary, each a list of words.
        title: words of the title; empty if there is none.
    """

    article: list[str]
    sentences: tuple[list[str], ...]
    title: list[str]


def parse(content: Any, form: str, mode: str, fields: Fields, needs_summary: bool = True) -> tuple[Pair, list[str]]:
    """Return the pair in an example, and a list of notes about unusual content.

    Args:
        content: content of the example; an exception if the example could not be read.
        form: format of the source, see `gyral.applications.summarization.data.sources.ArticleSource`.
        mode: parts of the example that are used, see `gyral.applications.summarization.data.sources.ArticleSource`.
        fields: names of the parts of the example, in forms that have names.
        needs_summary: whether an article without a summary is unusable.

    Raises:
        UnusableError: the example contains no pair.
    """
    if isinstance(content, Exception):
        raise content
    if form == "bin":
        pair, texts = _parse_example(content)
    elif form == "story":
        pair, texts = _parse_story(content)
    else:
        pair, texts = _parse_fields(load_line(content) if isinstance(content, bytes) else content, mode, fields)
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


def names_of(example: RawExample) -> set[str]:
    """Return the names of the fields of an example; none if it is not an object."""
    try:
        content = load_line(example.content) if isinstance(example.content, bytes) else example.content
    except UnusableError:
        return set()
    return {*map(str, content)} if isinstance(content, Mapping) else set()


def _parse_fields(content: Any, mode: str, fields: Fields) -> tuple[Pair, list[str]]:
    if not isinstance(content, Mapping):
        raise UnusableError("line that is not a JSON object")
    if missing := fields.missing(content):
        raise UnusableError(f"without the field {' and '.join(missing)}")
    article, summary, title = (field_lines(content, names) for names in fields)
    if mode == "sh2s":
        article = _shuffle(article)
    title_words = tokenize("\n".join(title))
    sentences = (title_words,) if mode == "s2t" else tuple(words for line in summary if (words := tokenize(line)))
    if mode != "s2t" and len(sentences) == 1:  # one line of text
        sentences = tuple(split_sentences(sentences[0]))
    return Pair(tokenize("\n".join(article)), sentences, title_words), [*article, *summary, *title]


def _shuffle(paragraphs: list[str]) -> list[str]:
    """Return the paragraphs in another order, which depends only on their text."""
    if len(paragraphs) < 2:
        raise UnusableError("with fewer than two paragraphs (lines), which cannot be shuffled")
    generator = random.Random("\n".join(paragraphs).encode(errors="surrogatepass"))
    keys = [generator.random() for _ in paragraphs]  # Python guarantees only the sequence of this method
    return [paragraph for _, paragraph in sorted(zip(keys, paragraphs, strict=True))]


def _parse_story(path: str) -> tuple[Pair, list[str]]:
    text = file_text(path)
    before, *highlights = re.split(r"^\s*@highlight\s*$", text, flags=re.MULTILINE)
    article = [word for line in before.split("\n") for word in _with_period(tokenize(line))]
    sentences = tuple(words for highlight in highlights if (words := _with_period(tokenize(highlight))))
    return Pair(article, sentences, []), [text]


def _with_period(words: list[str]) -> list[str]:
    """Return the words of a line, with a period added if the line has no final punctuation (See et al. 2017)."""
    return [*words, "."] if words and words[-1] not in (*ENDS, *CLOSING) else words


def _parse_example(example: bytes) -> tuple[Pair, list[str]]:
    """Parse a `tf.Example`: field 1 contains map entries, each a name (field 1) and a list of bytes (field 2)."""
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


def _split(text: str) -> list[str]:
    """Return the words of a tokenized text without the special symbols."""
    if has_control_characters(text):
        return tokenize(text)
    return [word for word in text.lower().split() if word not in SPECIAL]


def _fields(message: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the length-delimited values of one field of a protobuf message.

    Raises:
        IndexError, ValueError: the bytes are not a protobuf message.
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
    """Return the variable-length integer at a position and the position after it."""
    value = shift = 0
    while True:
        byte = message[position]
        value |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return value, position
        if shift > 63:
            raise ValueError(value)
