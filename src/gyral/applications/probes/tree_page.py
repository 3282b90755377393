"""An HTML page of sentences with their trees from the treebank and from each layer of a model."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.applications.probes.parsing import InducedTrees
from gyral.applications.probes.parsing_scores import gold_tree, sentence_f1
from gyral.applications.probes.tree_layout import Layout, gold_labels, lay_out
from gyral.applications.probes.trees import Span
from gyral.core.html import write_html
from gyral.data.treebank.sentences import ParsedSentence
from gyral.runs.evaluation_report import EvaluationReport

MAX_SENTENCES = 40
LENGTHS = range(4, 14)  # words of the sentences that are shown
CHARACTER = 6.8  # pixels, the width of a character
LEVEL = 24  # pixels, from a node to the next higher one
BARS = 26  # pixels, the height of the longest bar


class _Node(NamedTuple):
    """A constituent in a picture: "gold", "right" or "wrong", its place, an SVG path to its parts, and its label."""

    kind: str
    x: int
    y: int
    lines: str
    label: str


class _Word(NamedTuple):
    """A word in a picture: its center, its distance to the previous word, if any, and the height of its bar."""

    text: str
    x: int
    distance: float | None
    bar: float


class _Picture(NamedTuple):
    """A tree in pixels; `baseline` is the baseline of the words."""

    width: int
    height: int
    baseline: int
    nodes: list[_Node]
    words: list[_Word]


def write_page(
    path: Path, report: EvaluationReport, sentences: Sequence[ParsedSentence], induced: dict[str, InducedTrees]
) -> None:
    """Write a self-contained page: the table of scores, and the trees of the first sentences of 4 to 13 words.

    Args:
        path: path of the page.
        report: the table.
        sentences: sentences of a treebank.
        induced: the trees of the layers.
    """
    shown = [place for place, each in enumerate(sentences) if len(each.words) in LENGTHS][:MAX_SENTENCES]
    drawn = ((sentences[place].words, _pictures(sentences[place], place, induced)) for place in shown)
    write_html(path, __file__, title=report.title, report=report, sentences=drawn)


def _pictures(sentence: ParsedSentence, place: int, induced: dict[str, InducedTrees]) -> Iterator[tuple[str, _Picture]]:
    """Yield the caption and the picture of each tree of a sentence; the treebank comes first."""
    labels = gold_labels(sentence)
    yield "treebank", _draw(lay_out(gold_tree(sentence), sentence.words), sentence.words, labels, is_gold=True)
    for layer, own in induced.items():
        layout = lay_out(own.trees[place], sentence.words)
        picture = _draw(layout, sentence.words, labels, own.distances[place])
        yield f"{layer}, F1 {100 * sentence_f1(own.trees[place], sentence):.0f}", picture


def _draw(
    layout: Layout,
    words: Sequence[str],
    labels: dict[Span, str],
    distances: np.ndarray | None = None,
    *,
    is_gold: bool = False,
) -> _Picture:
    """Return a tree as a picture, with a bar below each word for its distance.

    Args:
        layout: the positions of its nodes.
        words: the words.
        labels: the treebank's constituents.
        distances: (n,), none for no bars.
        is_gold: whether the tree is the treebank's.
    """
    baseline = LEVEL * layout.height + 18

    def height(level: int) -> int:
        return baseline - 14 - LEVEL * level

    nodes = []
    for node in layout.nodes:
        x, y = round(node.x * CHARACTER), height(node.height)
        kind = "gold" if is_gold else "right" if node.span in labels else "wrong"
        lines = " ".join(f"M{x} {y}H{part * CHARACTER:.0f}V{height(level)}" for part, level in node.parts)
        nodes.append(_Node(kind, x, y, lines, labels.get(node.span, "")))
    middles = [round(middle * CHARACTER) for middle in layout.words]
    if distances is None:
        drawn = [_Word(word, x, None, 0) for word, x in zip(words, middles, strict=True)]
    else:  # bars range from 0 for the smallest distance of the sentence to the longest bar for the largest
        bars = BARS * (distances - distances.min()) / max(float(np.ptp(distances)), 1e-9)
        drawn = list(map(_Word, words, middles, distances.tolist(), bars.tolist()))
    bottom = baseline + 14 + (0 if distances is None else BARS + 8)
    return _Picture(round(layout.width * CHARACTER), bottom, baseline, nodes, drawn)
