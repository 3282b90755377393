"""An HTML page of documents with their chains of mentions, and the attention of a reader to their words."""

import html
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

import numpy as np

from gyral.core.files import replace_when_written
from gyral.core.html import page_head, strengths

# Units of the picture. The text has a font of fixed width, so that the places of the words are known.
SIGN = 8.2  # width of a character
WIDTH = 92  # characters of a line
LINE = 40  # distance between lines
RISE = 0.16  # height of an arc in a line, as a share of its length
MAX_RISE = 22
BULGE = 9  # of a curve to the side, for each line that it passes
MAX_BULGE = 55
FIRST = 8  # characters; curves between words that begin within them bulge to the left
LEFT = 70  # margins
MARGIN = 28
COLORS = 8  # of chains, which repeat
ENDS = (".", "!", "?")  # words that end a line


class Arc(NamedTuple):
    """A link between two mentions: the last word of one, the first word of the next, and the number of the chain."""

    source: int
    target: int
    chain: int


class Candidate(NamedTuple):
    """A possible answer with its probability, and whether it is right."""

    name: str
    probability: float
    is_right: bool


class Shown(NamedTuple):
    """A question about a document with the answer of a reader.

    Attributes:
        place: where the question is in the data.
        document, question: their words.
        attention: of each word of the document, with sum 1.
        arcs: links between words, which are numbered through document and question.
        is_read: whether the model reads along the links.
        candidates: the most likely answers, the most likely first.
        right: the right answer.
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
    """Where a word is in the picture: its left end, its width, and the number of its line."""

    x: float
    width: float
    line: int

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def y(self) -> float:
        return MARGIN + self.line * LINE


def write_page(path: Path, shown: Sequence[Shown], title: str) -> None:
    """Write a self-contained HTML page."""
    text = page_head(title, STYLE) + HEAD.substitute(title=html.escape(title)) + "".join(map(_section, shown)) + FOOT
    replace_when_written(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _section(shown: Shown) -> str:
    best = shown.candidates[0]
    rows = "".join(
        f"<tr{' class=right' if one.is_right else ''}><td>{html.escape(one.name)}</td><td>{one.probability:.0%}</td>"
        f'<td><i style="width:{100 * one.probability:.1f}%"></i></td></tr>\n'
        for one in shown.candidates
    )
    links = "edges" if shown.is_read else "chains, which this model does not read"
    return SECTION.substitute(
        place=html.escape(shown.place),
        question=html.escape(" ".join(shown.question)),
        answer=html.escape(best.name),
        remark="which is right" if best.is_right else f"right: {html.escape(shown.right)}",
        facts=f"{len(shown.document)} words, {len(shown.arcs)} {links}",
        rows=rows,
        picture=draw(shown),
    )


def draw(shown: Shown) -> str:
    """Return a document and its question as an SVG picture, a line for each sentence, with arcs between mentions."""
    places = _lay_out(shown)
    lines = places[-1].line + 1
    first = places[len(shown.document)]  # of the question
    parts = [
        f'<line class="join" x1="0" x2="100%" y1="{first.y - LINE / 2 - 8:.0f}" y2="{first.y - LINE / 2 - 8:.0f}"/>'
    ]
    colors = [f"{strength:.2f}" for strength in strengths(shown.attention)] + ["0"] * len(shown.question)
    for place, strength in zip(places, colors, strict=True):
        if float(strength) > 0:
            parts.append(
                f'<rect x="{place.x - 2:.1f}" y="{place.y - 13:.0f}" width="{place.width + 4:.1f}" height="18" rx="3" '
                f'fill-opacity="{strength}"/>'
            )
    dashed = "" if shown.is_read else " dashed"
    parts += [
        f'<path class="chain{arc.chain % COLORS}{dashed}" d="{_curve(places[arc.source], places[arc.target])}"/>'
        for arc in shown.arcs
    ]
    chains = {end: arc.chain for arc in shown.arcs for end in (arc.source, arc.target)}
    tooltips = [f"{weight:.1%} of the attention" for weight in shown.attention] + [""] * len(shown.question)
    for index, (word, place) in enumerate(zip((*shown.document, *shown.question), places, strict=True)):
        kind = f' class="chain{chains[index] % COLORS}"' if index in chains else ""
        tooltip = f"<title>{tooltips[index]}</title>" if tooltips[index] else ""
        parts.append(
            f'<text{kind} x="{place.x:.1f}" y="{place.y:.0f}" textLength="{place.width:.1f}">'
            f"{html.escape(word)}{tooltip}</text>"
        )
    width = max(place.x + place.width for place in places) + LEFT
    height = 2 * MARGIN + (lines - 1) * LINE
    return PICTURE.substitute(width=f"{width:.0f}", height=f"{height:.0f}", parts="\n".join(parts))


def _lay_out(shown: Shown) -> list[_Place]:
    """Return the places of the words. A line ends after a sentence, at the end of the document, or where it is full."""
    places, column, line = list[_Place](), 0, 0
    for index, word in enumerate((*shown.document, *shown.question)):
        is_new = index > 0 and (index == len(shown.document) or shown.document[index - 1 : index] in _SENTENCE_ENDS)
        if is_new or (column and column + len(word) > WIDTH):
            column, line = 0, line + 1
        places.append(_Place(LEFT + column * SIGN, max(len(word), 1) * SIGN, line))
        column += len(word) + 1
    return places


def _curve(source: _Place, target: _Place) -> str:
    """Return the path of an arc above the words of a line, or of a curve between lines, past those between them."""
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

STYLE = """\
:root { --look: 255 170 40; --c0: #0072b2; --c1: #d55e00; --c2: #007a5a; --c3: #a0409a; --c4: #8a6d00; --c5: #b0232f;
  --c6: #3f51b5; --c7: #50707f }
@media (prefers-color-scheme: dark) { :root { --look: 190 100 0; --c0: #56b4e9; --c1: #ff9a50; --c2: #3cc79f;
  --c3: #d78ad2; --c4: #e0c040; --c5: #ff7f8a; --c6: #9fa8ff; --c7: #9fc0cf } }
body { margin: 0 auto; max-width: 80rem; padding: 0.75rem 1.25rem }
h2 { margin: 0; font-size: 1.05rem }
.faint { color: var(--faint); font-variant-numeric: tabular-nums }
section { border-top: 1px solid var(--line); margin-top: 1.25rem; padding-top: 0.75rem }
.beside { display: grid; grid-template-columns: minmax(0, 1fr) 19rem; gap: 0 2rem; align-items: start }
@media (max-width: 55rem) { .beside { grid-template-columns: minmax(0, 1fr) } }
.picture { overflow-x: auto }
svg { display: block }
svg text { font: 13.5px ui-monospace, monospace; fill: var(--ink); paint-order: stroke; stroke: var(--page);
  stroke-width: 2px; stroke-opacity: 0.6 }
svg text[class] { font-weight: 600 }
svg rect { fill: rgb(var(--look)) }
svg path { fill: none; stroke-width: 1.6; stroke-opacity: 0.65 }
svg path:hover { stroke-width: 3.5; stroke-opacity: 1 }
svg path.dashed { stroke-dasharray: 4 4 }
svg .join { stroke: var(--line); stroke-dasharray: 2 4 }
table { border-collapse: collapse; width: 100% }
td { padding: 0.1rem 0.4rem; overflow-wrap: break-word }
td:nth-child(2) { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums }
td:nth-child(3) { width: 40% }
td i { display: block; height: 0.7rem; background: var(--faint); border-radius: 2px }
tr.right { font-weight: 600 }
tr.right i { background: var(--c2) }
.key span { padding: 0 0.4em; border-radius: 3px; color: var(--ink); background: rgb(var(--look) / 0.8) }
""" + "".join(
    f"svg path.chain{n} {{ stroke: var(--c{n}) }} svg text.chain{n} {{ fill: var(--c{n}) }}\n" for n in range(COLORS)
)

HEAD = Template("""\
<header>
<h1>$title</h1>
<p class="faint key">Each line is a sentence of the document; the question is below the dashed line.
<span>attention</span> that of the question to a word, on a logarithmic scale from the share that every word has
if the attention is uniform (no color) to all of it. Arcs join consecutive mentions of a chain; they are dashed if the
model does not read them.</p>
</header>
<main>
""")

SECTION = Template("""\
<section>
<h2>$question <strong>$answer</strong> <span class="faint">($remark)</span></h2>
<p class="faint">$place · $facts</p>
<div class="beside">
<div class="picture">$picture</div>
<table><tbody>
$rows</tbody></table>
</div>
</section>
""")

PICTURE = Template("""\
<svg width="$width" height="$height" role="img">
$parts
</svg>
""")

FOOT = """\
</main>
</body>
</html>
"""
