"""Positions of the nodes of a tree in a drawing. Heights count from the words up."""

from collections.abc import Sequence
from typing import NamedTuple

from gyral.applications.probes.parsing_scores import gold_tree
from gyral.applications.probes.trees import Span, Tree, children
from gyral.data.treebank.sentences import ParsedSentence

GAP = 1.2  # characters between words
MIN_WIDTH = 3.0  # characters of a word


class DrawnNode(NamedTuple):
    """A constituent in a drawing.

    Attributes:
        span: its words.
        x: its center, in characters.
        height: 0 for a word, else the height of its highest part + 1.
        parts: x and height of its parts, in order.
    """

    span: Span
    x: float
    height: int
    parts: tuple[tuple[float, int], ...]


class Layout(NamedTuple):
    """A drawing of a tree.

    Attributes:
        words: the center of each word, in characters.
        width: characters.
        height: height of the highest node.
        nodes: the constituents with two or more words, each after its parts.
    """

    words: tuple[float, ...]
    width: float
    height: int
    nodes: tuple[DrawnNode, ...]


def lay_out(tree: Tree, words: Sequence[str]) -> Layout:
    """Return the positions of the nodes of a tree over words."""
    centers, place = [], GAP / 2
    for word in words:
        width = max(len(word), MIN_WIDTH)
        centers.append(place + width / 2)
        place += width + GAP
    placed: dict[Span, DrawnNode] = {}
    whole = [(0, len(words))] if len(words) > 1 else []
    for span in sorted({*tree, *whole}, key=lambda each: each[1] - each[0]):
        own = children(tree, span)
        parts = tuple(
            (placed[part].x, placed[part].height) if part in placed else (centers[part[0]], 0) for part in own
        )
        height = 1 + max(height for _, height in parts)
        placed[span] = DrawnNode(span, (parts[0][0] + parts[-1][0]) / 2, height, parts)
    highest = max((node.height for node in placed.values()), default=0)
    return Layout(tuple(centers), place - GAP / 2, highest, tuple(placed.values()))


def gold_labels(sentence: ParsedSentence) -> dict[Span, str]:
    """Return the labels of the constituents with two or more words; labels of one span are joined, outermost first."""
    labels: dict[Span, list[str]] = {span: [] for span in gold_tree(sentence)}
    for start, end, label in sentence.constituents:
        if (start, end) in labels:
            labels[start, end].append(label)
    return {span: "–".join(dict.fromkeys(own)) for span, own in labels.items()}
