"""Equations of docstrings and pages, as MathML.

The notation is that of a terminal: Unicode, with `_` and `^` for scripts and braces around those of several signs, as
in `h_{t−1}`, `W_hh^τ`, `k̂_tᵀ` and `Σ_{j=1}^{K}`. `help()` shows it as it is, and browsers set MathML without a script.

In Markdown, an indented block with an equation is set line by line. What follows three spaces or more is a note to the
line. In other text, single letters with scripts are set.
"""

import html
import re
import unicodedata
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from markdown import Markdown
from markdown.blockprocessors import BlockProcessor
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor

RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ", "0123456789+−T", strict=True))
LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
ACCENTS = {"\u0302": "^", "\u0303": "~", "\u0304": "¯"}
LARGE = "ΣΠ"  # with limits below and above
SPACED = "=←+−/·⊙,;:"  # signs around which MathML has a space
TOKEN = re.compile(
    rf"""
    (?P<script>[_^])
    | (?P<raised>[{"".join(RAISED)}]+)
    | (?P<lowered>[{"".join(LOWERED)}]+)
    | (?P<number>\d+(?:[.,]\d+)*(?:e[-−+]?\d+)?|½)
    | (?P<word>[a-z]{{2,}}(?:_[A-Za-z]+)+|[A-Za-z]{{2,}}|[^\W\d_][{"".join(ACCENTS)}]?)
    | (?P<prime>')
    | (?P<space>\s+)
    | (?P<sign>.)
    """,
    re.VERBOSE,
)
# a letter with a script of some letters, of a number, or in braces
INLINE = (
    r"(?<![\w`/.~^])([^\W\d_][\u0302-\u0304]?'?(?:[_^](?:\{[^{}\n]+\}|[^\W\d_][\u0302-\u0304]?[^\W\d_]{0,2}(?![^\W_])|\d+)"
    r"|[₀-₉ᵀ²]|\[\w\])*[_^](?:\{[^{}\n]+\}|[^\W\d_][\u0302-\u0304]?[^\W\d_]{0,2}(?![^\W_])|\d+)[₀-₉ᵀ²]?)"
)


class Reader:
    """Reads a line of the notation from left to right.

    Args:
        text: the line.
    """

    def __init__(self, text: str) -> None:
        text = unicodedata.normalize("NFD", text).replace("-", "−")
        self.tokens = [(str(found.lastgroup), found[0]) for found in TOKEN.finditer(text)]
        self.place = 0

    def next(self) -> tuple[str, str]:
        """Return the kind and the text of the next token, without reading it; the kind is "" at the end."""
        return self.tokens[self.place] if self.place < len(self.tokens) else ("", "")

    def read(self, *kinds: str) -> str:
        """Return the text of the next token and pass it if it is of one of these kinds, else ""."""
        kind, text = self.next()
        if kind not in kinds:
            return ""
        self.place += 1
        return text

    def row(self, end: str = "") -> str:
        """Return everything up to a closing sign, which is passed."""
        parts = []
        while self.next()[0] and self.next()[1] != end:
            parts.append(self.scripted())
        if end:
            self.place += 1
        return "".join(parts)

    def scripted(self) -> str:
        """Return an atom with its scripts."""
        first = self.next()[1]
        base, below, above = self.atom(), "", ""
        while True:
            if self.read("prime"):
                above += "<mo>′</mo>"
            elif raised := self.read("raised"):
                above += _letters(RAISED[sign] for sign in raised)
            elif lowered := self.read("lowered"):
                below += _letters(LOWERED[sign] for sign in lowered)
            elif script := self.read("script"):
                braced = self.next()[1] == "{"
                inner = self._braced() if braced else self.atom()
                below, above = (below + inner, above) if script == "_" else (below, above + inner)
            else:
                break
        tags = ("munder", "mover", "munderover") if first in LARGE else ("msub", "msup", "msubsup")
        found = [f"<mrow>{part}</mrow>" for part in (below, above) if part]
        if not found:
            return base
        tag = tags[2] if len(found) == 2 else tags[0] if below else tags[1]
        return f"<{tag}>{base}{''.join(found)}</{tag}>"

    def _braced(self) -> str:
        self.place += 1
        return self.row("}")

    def atom(self) -> str:
        """Return the next sign, word or number, or the root of what follows."""
        kind, text = self.next()
        self.place += 1
        if kind == "space":
            return ""
        if kind == "number":
            return f"<mn>{text}</mn>"
        if kind == "word":
            return self._word(text)
        if text == "√":
            if self.next()[1] == "(":
                self.place += 1
                return f"<msqrt>{self.row(')')}</msqrt>"
            return f"<msqrt>{self.scripted()}</msqrt>"
        if text == "{":
            return f"<mo>{{</mo>{self.row('}')}<mo>}}</mo>"
        stretchy = ' stretchy="false"' if text in "()[]‖|⌈⌉" else ""
        return f"<mo{stretchy}>{html.escape(text)}</mo>"

    def _word(self, text: str) -> str:
        if text[-1] in ACCENTS:
            return f'<mover accent="true"><mi>{text[0]}</mi><mo stretchy="false">{ACCENTS[text[-1]]}</mo></mover>'
        if text in LARGE:
            return f"<mo>{ {'Σ': '∑', 'Π': '∏'}[text] }</mo>"
        is_script = self.place > 1 and self.tokens[self.place - 2][0] == "script"
        if len(set(text)) == 1 and not is_script:  # letters, as in wwᵀ
            return "".join(f"<mi>{letter}</mi>" for letter in text)
        if is_script or len(text) == 1:
            return f"<mi>{text}</mi>"
        if "_" in text:
            return f"<mtext>{text}</mtext>"
        left = "\u00a0" if self._has_word(self.place - 3, self.place - 2) else ""
        right = "\u00a0" if self._has_word(self.place + 1, self.place) else ""
        return f"<mtext>{left}{text}{right}</mtext>" if left or right else f"<mi>{text}</mi>"

    def _has_word(self, place: int, space: int) -> bool:
        """Return whether the token at a place is one from which a space separates a word."""
        if min(place, space) < 0 or max(place, space) >= len(self.tokens):
            return False
        return self.tokens[space][0] == "space" and self.tokens[place][1] not in SPACED


def _letters(signs: Iterator[str]) -> str:
    return "".join(f"<mn>{sign}</mn>" if sign.isdigit() else f"<mi>{sign}</mi>" for sign in signs)


def formula(text: str, *, large: bool = False) -> str:
    """Return a formula as MathML. `large`: it has its own line, and limits are set below and above."""
    style = ' displaystyle="true"' if large else ""
    return f'<math{style} alttext="{html.escape(text)}">{Reader(text).row()}</math>'


def prose(text: str) -> str:
    """Return a text with its letters with scripts as MathML."""
    parts = re.split(INLINE, unicodedata.normalize("NFD", text))
    return "".join(formula(part) if place % 2 else html.escape(part, quote=False) for place, part in enumerate(parts))


def line(text: str) -> str:
    """Return a line of a block: its formulas, which a narrow screen shows below each other, and its note."""
    shown, _, note = re.sub(r"(?<![,;]) {3,}", "\t", text.strip(), count=1).partition("\t")
    formulas = " ".join(formula(part, large=True) for part in re.split(r"(?<=[,;]) {2,}", shown))
    return f"<div>{formulas}</div><div>{prose(' '.join(note.split()))}</div>"


def is_equation(block: str) -> bool:
    """Return whether an indented block has equations and no code."""
    has_code = re.search(
        r">>>|^\s*(import|def|return|from|class|gyral|python|\$|#|<)\b|\w\.\w+\(|\"", block, re.MULTILINE
    )
    return not has_code and re.search(r"(?<!\w)\w['\u0302-\u0304]*[_^][\w{]|[⊙σᵀ]", block) is not None and "=" in block


class _Blocks(BlockProcessor):
    def test(self, parent: ElementTree.Element, block: str) -> bool:
        return block.startswith("    ") and is_equation(unicodedata.normalize("NFD", block))

    def run(self, parent: ElementTree.Element, blocks: list[str]) -> None:
        block, rest = self.detab(blocks.pop(0))
        if rest:
            blocks.insert(0, rest)
        lines = "".join(map(line, filter(str.strip, block.splitlines())))
        place = ElementTree.SubElement(parent, "p")
        place.text = self.parser.md.htmlStash.store(f'<div class="equations">{lines}</div>')


class _Letters(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> Any:  # noqa: N802  the name that Markdown calls
        return self.md.htmlStash.store(formula(m[1])), m.start(0), m.end(0)


class Equations(Extension):
    """The extension of Markdown."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802  the name that Markdown calls
        md.parser.blockprocessors.register(_Blocks(md.parser), "equations", 85)  # before code, which is indented, too
        md.inlinePatterns.register(_Letters(INLINE, md), "letters", 75)  # after code, before emphasis
