"""An HTML page of sentences with their trees: that of the treebank beside those of each layer of a model."""

import html
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gyral.applications.probes.parsing import InducedTrees
from gyral.applications.probes.parsing_scores import gold_tree, sentence_f1
from gyral.applications.probes.tree_layout import Layout, gold_labels, lay_out
from gyral.applications.probes.trees import Span
from gyral.core.files import write_atomically
from gyral.core.html import page_head
from gyral.data.treebank.sentences import ParsedSentence
from gyral.runs.evaluation_report import EvaluationReport

MAX_SENTENCES = 40
LENGTHS = range(4, 14)  # words of the sentences that are shown
CHARACTER = 6.8  # pixels, the width of a character
LEVEL = 24  # pixels, from a node to the next higher one
BARS = 26  # pixels, the height of the longest bar


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
    parts = [
        page_head(report.title, STYLE),
        f"<main>\n<h1>{html.escape(report.title)}</h1>\n",
        _table(report),
        LEGEND,
        *(_sentence(sentences[place], _layers(induced, place)) for place in shown),
        "</main>\n</body>\n</html>\n",
    ]
    write_atomically(path, "".join(parts))


def _layers(induced: dict[str, InducedTrees], place: int) -> dict[str, tuple[np.ndarray, list[Span]]]:
    """Return the distances and the tree of one sentence for each layer."""
    return {layer: (own.distances[place], own.trees[place]) for layer, own in induced.items()}


def _table(report: EvaluationReport) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in report.heads)
    rows = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>\n" if row else '<tr class="gap"></tr>\n'
        for row in report.rows
    )
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in report.notes)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n{notes}'


def _sentence(sentence: ParsedSentence, layers: dict[str, tuple[np.ndarray, list[Span]]]) -> str:
    gold, labels = lay_out(gold_tree(sentence), sentence.words), gold_labels(sentence)
    figures = [_figure("treebank", _draw(gold, sentence.words, labels, set(labels), None))]
    for layer, (distances, tree) in layers.items():
        f1 = 100 * sentence_f1(tree, sentence)
        picture = _draw(lay_out(tree, sentence.words), sentence.words, {}, set(labels), distances)
        figures.append(_figure(f"{layer}, F1 {f1:.0f}", picture))
    text = html.escape(" ".join(sentence.words))
    return f'<section>\n<h2>{text}</h2>\n<div class="beside">\n{"".join(figures)}</div>\n</section>\n'


def _figure(caption: str, picture: str) -> str:
    return f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>\n"


def _draw(
    layout: Layout, words: Sequence[str], labels: dict[Span, str], gold: set[Span], distances: np.ndarray | None
) -> str:
    """Return a tree as an SVG picture, with a bar before each word for its distance."""
    width, top = layout.width * CHARACTER, LEVEL * layout.height + 18
    height = top + 14 + (0 if distances is None else BARS + 8)
    drawn = []
    for node in layout.nodes:
        x, y = node.x * CHARACTER, top - 14 - LEVEL * node.height
        kind = "gold" if labels else "right" if node.span in gold else "wrong"
        lines = " ".join(
            f"M{x:.0f} {y:.0f}H{part * CHARACTER:.0f}V{top - 14 - LEVEL * level:.0f}" for part, level in node.parts
        )
        drawn.append(f'<path class="{kind}" d="{lines}"/>')
    for node in layout.nodes:
        x, y = node.x * CHARACTER, top - 14 - LEVEL * node.height
        if labels:
            label = html.escape(labels.get(node.span, ""))
            drawn.append(f'<text class="label" x="{x:.0f}" y="{y + 4:.0f}">{label}</text>')
        else:
            drawn.append(
                f'<circle class="{"right" if node.span in gold else "wrong"}" cx="{x:.0f}" cy="{y:.0f}" r="4"/>'
            )
    for center, word in zip(layout.words, words, strict=True):
        drawn.append(f'<text x="{center * CHARACTER:.0f}" y="{top}">{html.escape(word)}</text>')
    if distances is not None:
        drawn += _bars(layout, distances, top + 14)
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img">'
        f"{''.join(drawn)}</svg>"
    )


def _bars(layout: Layout, distances: np.ndarray, top: float) -> list[str]:
    """Return a bar for each distance, from the smallest of the sentence, none, to the largest."""
    low, high = float(distances.min()), float(distances.max())
    bars = []
    for center, distance in zip(layout.words, distances.tolist(), strict=True):
        length = BARS * (distance - low) / max(high - low, 1e-9)
        bars.append(
            f'<rect x="{center * CHARACTER - 5:.0f}" y="{top + BARS - length:.1f}" width="10" height="{length:.1f}">'
            f"<title>distance {distance:.4f}</title></rect>"
        )
    return bars


STYLE = """\
:root { --right: #0b6fc2; --wrong: #b4561a }
@media (prefers-color-scheme: dark) { :root { --right: #62b0f5; --wrong: #e79a63 } }
main { max-width: 90rem; margin: 0 auto; padding: 0.75rem 1.25rem 3rem }
p { color: var(--faint) }
h2 { margin: 1.5rem 0 0.25rem; font-size: 1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 0.75rem 0; font-variant-numeric: tabular-nums }
th { font-weight: 600; color: var(--faint); vertical-align: bottom; text-align: right; max-width: 6rem }
td { text-align: right }
td, th { padding: 0.1rem 0.6rem; border-bottom: 1px solid var(--line) }
td:first-child, th:first-child { text-align: left; max-width: none; white-space: nowrap }
tr.gap { height: 0.6rem }
.beside { display: flex; flex-wrap: wrap; gap: 0.75rem 2rem; align-items: flex-end }
figure { margin: 0; overflow-x: auto; max-width: 100%; padding: 0.5rem;
  border: 1px solid var(--line); border-radius: 3px }
figcaption { color: var(--faint); font-size: 0.875rem }
svg { display: block; max-width: 100%; height: auto }
svg text { fill: var(--ink); font-size: 12px; text-anchor: middle }
svg .label { font-size: 11px; font-weight: 600; stroke: var(--page); stroke-width: 4px; paint-order: stroke }
svg path { fill: none; stroke-width: 1.4 }
svg .gold { stroke: var(--faint) }
svg path.right { stroke: var(--right) }
svg path.wrong { stroke: var(--wrong); stroke-dasharray: 4 3 }
svg circle.right { fill: var(--right) }
svg circle.wrong { fill: var(--page); stroke: var(--wrong); stroke-width: 1.6 }
svg rect { fill: var(--faint) }
"""

LEGEND = """\
<p>Filled circles and solid lines: constituents that the treebank has, too. Open circles and dashed lines: others. The
bar below a word is its distance to the word before; a sentence is split before the word with the largest one, then each
part likewise.</p>
"""
