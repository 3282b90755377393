"""A text with each symbol coloured by how surprising it was: in the terminal, as a page, as lines. Imports no torch."""

import html
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import NamedTuple

from rich.console import Console
from rich.style import Style
from rich.text import Text

from gyral import runs
from gyral.core import html as webpage
from gyral.data.vocabulary import END_OF_LINE, Decoder

UNITS = {"char": "character", "word": "word", "byte": "byte"}
UNSEEN = {" ": "space", "\n": "line end", END_OF_LINE: "line end", "\t": "tab", "\r": "carriage return"}

# Where a stronger colour begins, in bits; below the first there is none. The same for every text, so that two of them,
# or two models, can be compared.
LIMITS = (1, 2, 3, 4, 6, 8, 12)

# Background and letters of each step. They grow stronger where the page is light by growing darker, where it is dark by
# growing brighter, for those, too, who do not see red and green.
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


class Reading(NamedTuple):
    """How likely a model held one symbol of a text, given all before it.

    Attributes:
        symbol: as it stands in the text; a byte is the character of the same code point.
        token: the symbol of the vocabulary that it was read as: another one where that is `<unk>`.
        bits: −log2 p; None for the first symbol, which nothing predicts.
        likeliest: symbols with their probabilities, the likeliest first.
    """

    symbol: str
    token: str
    bits: float | None
    likeliest: tuple[tuple[str, float], ...]


class Cell(NamedTuple):
    """What is coloured as one: a symbol, or the bytes that make a character, whose bits add up.

    Attributes:
        gap: the space before a word.
        text: as it stands in the text.
        readings: of its symbols.
    """

    gap: str
    text: str
    readings: tuple[Reading, ...]

    @property
    def bits(self) -> float:
        return sum(reading.bits or 0.0 for reading in self.readings)

    @property
    def step(self) -> int:
        """Of the colours, 0 for none."""
        return bisect_right(LIMITS, self.bits)

    @property
    def shown(self) -> str:
        """The text with a sign for what cannot be seen."""
        return "".join(map(_visible, self.text))


class Mean:
    """Sums up readings as they pass by.

    Args:
        level: of the vocabulary.
    """

    def __init__(self, level: str) -> None:
        self._unit = UNITS[level]
        self._bits = 0.0
        self._count = 0

    def count(self, readings: Iterable[Reading]) -> Iterator[Reading]:
        """Yield the readings."""
        for reading in readings:
            if reading.bits is not None:
                self._bits += reading.bits
                self._count += 1
            yield reading

    def __str__(self) -> str:
        mean = self._bits / self._count
        over = f"{self._count:,} {self._unit}{'s' if self._count > 1 else ''}"
        return f"mean {mean:.4f} bits a {self._unit}, perplexity {2**mean:.4g}, over {over}"


def print_readings(readings: Iterable[Reading], level: str) -> Iterator[str]:
    """Yield what standard output shows: colours on a terminal, else a line a symbol, its bits and it as JSON.

    Both end with the mean.
    """
    console = Console(markup=False, highlight=False, emoji=False)
    mean = Mean(level)
    if not console.is_terminal:
        for reading in mean.count(readings):
            bits = "" if reading.bits is None else f"{reading.bits:.4f}"
            yield f"{bits}\t{json.dumps(reading.symbol, ensure_ascii=False)}\n"
        yield f"# {mean}\n"
        return
    styles = [Style(), *(Style(bgcolor=background, color=letters) for background, letters in DARK)]
    line = Text()
    for cell in cells(mean.count(readings), level):
        line.append(cell.gap)
        line.append(cell.shown, styles[cell.step])
        if cell.text.endswith("\n"):
            yield _coloured(console, line)
            line = Text()
    if line:
        yield _coloured(console, line)
    line = Text("\nbits ")
    for step, (name, style) in enumerate(zip(steps(), styles, strict=True)):
        line.append(f" {name} " if step else f"{name} ", style)
    yield _coloured(console, line)
    yield f"{mean}\n"


def _coloured(console: Console, line: Text) -> str:
    with console.capture() as capture:
        console.print(line, soft_wrap=True)
    return capture.get()


def write_page(path: Path, readings: Iterable[Reading], level: str, title: str) -> str:
    """Write a text as a page that needs no other file; return what it says of the mean, and where it is.

    Args:
        path: of the page.
        readings: of the text.
        level: of the vocabulary.
        title: of the text.
    """
    mean = Mean(level)

    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(webpage.start(f"Surprisal of {title}", STYLE + _style()))
            file.write(HEAD.substitute(title=html.escape(title), unit="word" if level == "word" else "character"))
            for cell in cells(mean.count(readings), level):
                shown = html.escape(cell.gap) + _mark(cell, level)
                file.write(shown + "\n" if cell.text.endswith("\n") else shown)
            legend = "".join(f'<span class="s{step}">{html.escape(name)}</span>' for step, name in enumerate(steps()))
            file.write(FOOT.substitute(legend=legend, mean=html.escape(str(mean))))

    runs.replace_when_written(path, write)
    return f"{mean}\n{path}\n"


def cells(readings: Iterable[Reading], level: str) -> Iterator[Cell]:
    """Yield readings in cells; bytes that no character can be made of are shown as �."""
    decoder = Decoder(level)
    pending: list[Reading] = []
    for reading in readings:
        pending.append(reading)
        text = decoder.add(reading.symbol)
        if text:
            gap = " " if level == "word" and text.startswith(" ") else ""
            yield Cell(gap, text.removeprefix(gap), tuple(pending))
            pending = []
    if pending:
        yield Cell("", decoder.end(), tuple(pending))


def steps() -> list[str]:
    """Return the bits that each colour stands for, none first."""
    between = [f"{low}–{high}" for low, high in pairwise(LIMITS)]
    return [f"< {LIMITS[0]}", *between, f"≥ {LIMITS[-1]}"]


def describe(cell: Cell, level: str) -> str:
    """Return what hovering over a cell tells: symbol and bits, then what the model held likeliest, a line each."""
    lines = []
    if len(cell.readings) > 1:
        lines.append(f"{_name(cell.text, 'char')}: {cell.bits:.2f} bits, of {len(cell.readings)} bytes")
    for reading in cell.readings:
        read_as = "" if reading.token == reading.symbol else f" (read as {reading.token})"
        name = _name(reading.symbol, level) + read_as
        if reading.bits is None:
            lines.append(f"{name}: the first, which nothing predicts")
        else:
            lines.append(f"{name}: {reading.bits:.2f} bits")
            lines += [f"{_percent(chance)}  {_name(symbol, level)}" for symbol, chance in reading.likeliest]
    return "\n".join(lines)


def _mark(cell: Cell, level: str) -> str:
    colour = f' class="s{cell.step}"' if cell.step else ""
    told = html.escape(describe(cell, level)).replace("\n", "&#10;")
    return f'<span{colour} title="{told}">{html.escape(cell.shown)}</span>'


def _percent(chance: float) -> str:
    return f"{100 * chance:.1f} %" if chance >= 0.001 else "< 0.1 %"


def _visible(character: str) -> str:
    if character == "\n":
        return "⏎"
    # a terminal would obey control characters: for half of them Unicode has pictures
    if character < " " and character != "\t":
        return chr(0x2400 + ord(character))
    return "\N{REPLACEMENT CHARACTER}" if "\x7f" <= character < "\xa0" else character


def _name(symbol: str, level: str) -> str:
    if level == "byte" and not symbol.isascii():
        return f"byte 0x{ord(symbol):02x}"
    return UNSEEN.get(symbol, f"‘{''.join(map(_visible, symbol))}’")


def _style() -> str:
    def rules(colours: tuple[tuple[str, str], ...]) -> str:
        named = enumerate(colours, start=1)
        return " ".join(f".s{step} {{ background: {back}; color: {letters} }}" for step, (back, letters) in named)

    return f"{rules(LIGHT)}\n@media (prefers-color-scheme: dark) {{ {rules(DARK)} }}"


STYLE = """\
header, main, footer { max-width: 60rem; margin: 0 auto; padding: 0.75rem 1.25rem }
p { color: var(--faint) }
pre { margin: 0; font: 1rem/1.7 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; tab-size: 4 }
pre span { border-radius: 2px; cursor: default }
pre span:hover { outline: 2px solid var(--ink) }
footer { position: sticky; bottom: 0; background: var(--page); border-top: 1px solid var(--line) }
footer span { display: inline-block; padding: 0 0.6rem; font-variant-numeric: tabular-nums }
"""

HEAD = Template("""\
<header>
<h1>Surprisal of $title</h1>
<p>Each $unit is coloured by −log₂ p, its bits, where p is the model’s probability of it given all before it.
Hover over one for its bits and what the model held likeliest.</p>
</header>
<main><pre>
""")

FOOT = Template("""\
</pre></main>
<footer>
<div>bits $legend</div>
<p>$mean</p>
</footer>
</body>
</html>
""")
