"""An HTML page of documents with their chains of mentions, and the attention of a reader to their words."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.core.html import strengths, write_html

# Units of the picture. The font has a fixed width, so that the positions of the words are known.
SIGN = 8.2  # width of a character
WIDTH = 92  # characters of a line
LINE = 40  # distance between lines
RISE = 0.16  # height of an arc in a line, as a share of its length
MAX_RISE = 22
BULGE = 9  # sideways bulge of a curve per line that it passes
MAX_BULGE = 55
FIRST = 8  # curves between words that begin within this number of characters bulge to the left
LEFT = 70  # margins
MARGIN = 28
COLORS = 8  # number of colors of chains; they repeat
ENDS = (".", "!", "?")  # words that end a line


class Arc(NamedTuple):
    """A link between two mentions: the last word of one, the first word of the next, and the number of the chain."""

    source: int
    target: int
    chain: int


class Candidate(NamedTuple):
    """A possible answer, its probability, and whether it is correct."""

    name: str
    probability: float
    is_right: bool


class Shown(NamedTuple):
    """A question about a document with the answer of a reader.

    Attributes:
        place: position of the question in the data.
        document, question: the words.
        attention: attention to each word of the document, with sum 1.
        arcs: links between words, whose indices count the document and then the question.
        is_read: whether the model uses the links as edges.
        candidates: the most likely answers, in descending order.
        right: the correct answer.
    """

    place: str
    document: Sequence[str]
    question: Sequence[str]
    attention: np.ndarray
    arcs: Sequence[Arc]
    is_read: bool
    candidates: Sequence[Candidate]
    right: str


class _Place(NamedTuple):
    """Position of a word in the picture: its left end, its width, and the number of its line."""

    x: float
    width: float
    line: int

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def y(self) -> int:
        return MARGIN + self.line * LINE


class _Word(NamedTuple):
    """A word in the picture.

    Attributes:
        text: the word.
        place: its position.
        color: number of the color of its chain; None without a chain.
        attention: attention to the word; None in the question.
        strength: opacity of its background, with two digits.
    """

    text: str
    place: _Place
    color: int | None
    attention: float | None
    strength: str


class Picture(NamedTuple):
    """A document with its question below the height `border`; an arc is the number of its color and an SVG path."""

    width: int
    height: int
    border: int
    words: list[_Word]
    curves: list[tuple[int, str]]


def write_page(path: Path, shown: Sequence[Shown], title: str) -> None:
    """Write a self-contained HTML page."""
    write_html(path, __file__, title=title, shown=shown, draw=draw, colors=COLORS)


def draw(shown: Shown) -> Picture:
    """Return the picture of a document and its question, a line for each sentence, with arcs between mentions."""
    places = _lay_out(shown)
    question = len(shown.question)
    texts = (*shown.document, *shown.question)
    attention = [*shown.attention.tolist(), *[None] * question]
    opacities = [f"{strength:.2f}" for strength in (*strengths(shown.attention).tolist(), *[0.0] * question)]
    colors = {end: arc.chain % COLORS for arc in shown.arcs for end in (arc.source, arc.target)}
    words = zip(texts, places, map(colors.get, range(len(texts))), attention, opacities, strict=True)
    return Picture(
        width=round(max(place.x + place.width for place in places) + LEFT),
        height=2 * MARGIN + places[-1].line * LINE,
        border=places[len(shown.document)].y - LINE // 2 - 8,
        words=[_Word(*word) for word in words],
        curves=[(arc.chain % COLORS, _curve(places[arc.source], places[arc.target])) for arc in shown.arcs],
    )


def _lay_out(shown: Shown) -> list[_Place]:
    """Return the positions of the words. A line ends with a sentence, with the document, or when it is full."""
    places, column, line = list[_Place](), 0, 0
    for index, word in enumerate((*shown.document, *shown.question)):
        is_new = index > 0 and (index == len(shown.document) or shown.document[index - 1 : index] in _SENTENCE_ENDS)
        if is_new or (column and column + len(word) > WIDTH):
            column, line = 0, line + 1
        places.append(_Place(LEFT + column * SIGN, max(len(word), 1) * SIGN, line))
        column += len(word) + 1
    return places


def _curve(source: _Place, target: _Place) -> str:
    """Return the path of an arc above the words of a line, or of a curve between lines, beside the lines in between."""
    lines = target.line - source.line
    if lines == 0:
        rise = min(8 + RISE * (target.middle - source.middle), MAX_RISE)
        top = source.y - 14
        start, *rest = (
            (source.middle, top),
            (source.middle, top - rise),
            (target.middle, top - rise),
            (target.middle, top),
        )
    elif lines == 1:
        top, bottom = source.y + 5, target.y - 14
        middle = (top + bottom) / 2
        start, *rest = (source.middle, top), (source.middle, middle), (target.middle, middle), (target.middle, bottom)
    else:
        bulge = min(BULGE * lines, MAX_BULGE)
        if max(source.x, target.x) < LEFT + FIRST * SIGN:
            x, end, side = source.x - 3, target.x - 3, -bulge
        else:
            x, end, side = source.x + source.width + 3, target.x + target.width + 3, bulge
        start, *rest = (x, source.y - 4), (x + side, source.y - 4), (end + side, target.y - 5), (end, target.y - 5)
    first, *others = (f"{x:.1f} {y:.1f}" for x, y in (start, *rest))
    return f"M{first} C{' '.join(others)}"


_SENTENCE_ENDS = tuple([end] for end in ENDS)
