"""Views of a text whose symbols are colored by surprisal: in the terminal, as an HTML page, as lines.

The module does not import torch.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rich.style import Style
from rich.text import Text

from gyral.core.console import Console
from gyral.core.files import to_json
from gyral.core.html import write_html
from gyral.core.measures import BITS, PERPLEXITY, perplexity_of
from gyral.data.vocabulary import END_OF_LINE, Decoder
from gyral.generation.output import Styled

UNITS = {"char": "character", "word": "word", "byte": "byte"}
UNSEEN = {" ": "space", "\n": "line end", END_OF_LINE: "line end", "\t": "tab", "\r": "carriage return"}

# Lower bounds of the colors, in bits; symbols below the first have no color. The bounds do not depend on the text, so
# that texts and models can be compared.
LIMITS = (1, 2, 3, 4, 6, 8, 12)

# Background and text color of each step. Stronger colors are darker on a light page and brighter on a dark page, so
# that color-blind readers can tell them apart.
LIGHT = (
    ("#ffeda0", "#000000"),
    ("#fed976", "#000000"),
    ("#feb24c", "#000000"),
    ("#fd8d3c", "#000000"),
    ("#fc4e2a", "#000000"),
    ("#c3161b", "#ffffff"),
    ("#800026", "#ffffff"),
)
DARK = (
    ("#3f4256", "#ffffff"),
    ("#57438a", "#ffffff"),
    ("#85389a", "#ffffff"),
    ("#b02d78", "#ffffff"),
    ("#cc3b44", "#ffffff"),
    ("#f27d2a", "#000000"),
    ("#ffc933", "#000000"),
)


class Surprisal(NamedTuple):
    """The probability that a model gives one symbol of a text, given all symbols before it.

    Attributes:
        symbol: the symbol in the text; a byte is the character of the same code point.
        token: the symbol of the vocabulary, which differs from `symbol` if it is `<unk>`.
        bits: −log2 p; None for the first symbol, which is not predicted.
        likeliest: the most likely symbols with their probabilities, in descending order.
    """

    symbol: str
    token: str
    bits: float | None
    likeliest: tuple[tuple[str, float], ...]


class MarkedText(NamedTuple):
    """A piece of text with one color: a symbol, or the bytes of a character, which have the sum of their bits.

    Attributes:
        gap: the space before a word.
        text: the text of the piece.
        surprisals: the surprisals of its symbols.
    """

    gap: str
    text: str
    surprisals: tuple[Surprisal, ...]

    @property
    def bits(self) -> float:
        return sum(surprisal.bits or 0.0 for surprisal in self.surprisals)

    @property
    def step(self) -> int:
        """Index of the color, 0 for no color."""
        return bisect_right(LIMITS, self.bits)

    @property
    def shown(self) -> str:
        """The text with signs for invisible characters."""
        return "".join(map(_visible, self.text))


class MeanSurprisal:
    """Mean bits per symbol and perplexity of the surprisals that pass through `count`.

    Args:
        level: level of the vocabulary: "char", "word" or "byte".
    """

    def __init__(self, level: str) -> None:
        self._unit = UNITS[level]
        self._bits = 0.0
        self._count = 0

    def count(self, surprisals: Iterable[Surprisal]) -> Iterator[Surprisal]:
        """Yield the surprisals unchanged."""
        for surprisal in surprisals:
            if surprisal.bits is not None:
                self._bits += surprisal.bits
                self._count += 1
            yield surprisal

    def __str__(self) -> str:
        mean = self._bits / self._count
        over = f"{self._count:,} {self._unit}{'s' if self._count > 1 else ''}"
        perplexity = f"{perplexity_of(mean * math.log(2)):.{PERPLEXITY.digits}f}"
        return f"mean {mean:.{BITS.digits}f} bits a {self._unit}, perplexity {perplexity}, over {over}"


def print_surprisals(surprisals: Iterable[Surprisal], level: str) -> Iterator[str]:
    """Yield the text for standard output, followed by the mean.

    A terminal shows colors. Other output has one line per symbol: its bits and the symbol as a JSON string.
    """
    console = Console()
    mean = MeanSurprisal(level)
    if not console.is_terminal:
        for surprisal in mean.count(surprisals):
            bits = "" if surprisal.bits is None else f"{surprisal.bits:.4f}"
            yield f"{bits}\t{to_json(surprisal.symbol)}\n"
        yield f"# {mean}\n"
        return
    styles = [Style(), *(Style(bgcolor=background, color=letters) for background, letters in DARK)]
    line = Text()
    for piece in mark_texts(mean.count(surprisals), level):
        line.append(piece.gap)
        line.append(piece.shown, styles[piece.step])
        if piece.text.endswith("\n"):
            yield _colored(console, line)
            line = Text()
    if line:
        yield _colored(console, line)
    line = Text("\nbits ")
    for step, (name, style) in enumerate(zip(steps(), styles, strict=True)):
        line.append(f" {name} " if step else f"{name} ", style)
    yield _colored(console, line)
    yield f"{mean}\n"


def _colored(console: Console, line: Text) -> str:
    with console.capture() as capture:
        console.print(line, soft_wrap=True)
    return Styled(capture.get())


def write_page(path: Path, surprisals: Iterable[Surprisal], level: str, title: str) -> str:
    """Write a self-contained HTML page; return the mean and the path as text.

    Args:
        path: path of the page.
        surprisals: the surprisals of the text.
        level: level of the vocabulary.
        title: title of the text.
    """
    mean = MeanSurprisal(level)
    write_html(
        path,
        __file__,
        title=f"Surprisal of {title}",
        unit="word" if level == "word" else "character",
        level=level,
        pieces=mark_texts(mean.count(surprisals), level),
        describe=describe,
        steps=steps(),
        light=LIGHT,
        dark=DARK,
        mean=mean,  # the mean of the symbols so far, so the template must use it last
    )
    return f"{mean}\n{path}\n"


def mark_texts(surprisals: Iterable[Surprisal], level: str) -> Iterator[MarkedText]:
    """Yield surprisals as pieces of text; bytes that are not valid UTF-8 are shown as �."""
    decoder = Decoder(level)
    pending: list[Surprisal] = []
    for surprisal in surprisals:
        pending.append(surprisal)
        text = decoder.add(surprisal.symbol)
        if text:
            gap = " " if level == "word" and text.startswith(" ") else ""
            yield MarkedText(gap, text.removeprefix(gap), tuple(pending))
            pending = []
    if pending:
        yield MarkedText("", decoder.end(), tuple(pending))


def steps() -> list[str]:
    """Return the range of bits of each color, in order; the first has no color."""
    between = [f"{low}–{high}" for low, high in pairwise(LIMITS)]
    return [f"< {LIMITS[0]}", *between, f"≥ {LIMITS[-1]}"]


def describe(piece: MarkedText, level: str) -> str:
    """Return the tooltip of a piece: symbol and bits, then one line for each of the most likely symbols."""
    lines = []
    if len(piece.surprisals) > 1:
        lines.append(f"{_name(piece.text, 'char')}: {piece.bits:.2f} bits, of {len(piece.surprisals)} bytes")
    for surprisal in piece.surprisals:
        read_as = "" if surprisal.token == surprisal.symbol else f" (read as {surprisal.token})"
        name = _name(surprisal.symbol, level) + read_as
        if surprisal.bits is None:
            lines.append(f"{name}: the first symbol, which is not predicted")
        else:
            lines.append(f"{name}: {surprisal.bits:.2f} bits")
            lines += [f"{_percent(chance)}  {_name(symbol, level)}" for symbol, chance in surprisal.likeliest]
    return "\n".join(lines)


def _percent(chance: float) -> str:
    return f"{100 * chance:.1f} %" if chance >= 0.001 else "< 0.1 %"


def _visible(character: str) -> str:
    if character == "\n":
        return "⏎"
    # A terminal would execute control characters. Unicode has pictures of half of them.
    if character < " " and character != "\t":
        return chr(0x2400 + ord(character))
    return "\N{REPLACEMENT CHARACTER}" if "\x7f" <= character < "\xa0" else character


def _name(symbol: str, level: str) -> str:
    if level == "byte" and not symbol.isascii():
        return f"byte 0x{ord(symbol):02x}"
    return UNSEEN.get(symbol, f"‘{''.join(map(_visible, symbol))}’")
