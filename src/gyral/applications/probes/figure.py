"""The tree of a sentence in the treebank and the trees from the gates of a language model."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gyral.applications.probes.parsing import InducedTrees, induce
from gyral.applications.probes.parsing_scores import gold_tree, sentence_f1
from gyral.applications.probes.tree_layout import Layout, gold_labels, lay_out
from gyral.applications.probes.trees import Span
from gyral.core.errors import OptionError
from gyral.data.treebank import sentences as treebank
from gyral.data.treebank.sentences import SAMPLE, ParsedSentence
from gyral.figures.common import add_title
from gyral.plotting.sizes import WIDTHS
from gyral.plotting.style import COLORS
from gyral.runs.directory import Run
from gyral.training import build

LENGTHS = range(10, 15)  # words of the sentence
CONSTITUENTS = 5  # smallest number of constituents of the sentence
LEVEL = 0.15  # inches, from a node to the next higher one
BARS = 2.0  # levels, the height of the longest bar
SIZE = 6.5  # points, of words and labels


def parse(run: Run) -> Figure:
    """Draw the first sentence of the treebank's sample with 10 to 14 words and at least five constituents.

    The first panel has the tree of the treebank. Each layer with a forget gate has another panel, with its distances as
    bars.

    Raises:
        OptionError: the sample does not exist, or the run is not a language model of words with a forget gate.
    """
    task, step = build.load_trained(run, "best")
    try:
        sentences = treebank.load(SAMPLE, run.config.paths.data_dir)
    except OptionError as error:
        raise OptionError("figure", "parse", error.reason) from None
    sentence = next(each for each in sentences if len(each.words) in LENGTHS and len(gold_tree(each)) >= CONSTITUENTS)
    try:
        layers = induce(task, [sentence], SAMPLE)
    except OptionError as error:
        raise OptionError("run", run.directory, error.reason) from None
    return draw_trees(run, sentence, layers, step)


def draw_trees(run: Run, sentence: ParsedSentence, layers: dict[str, InducedTrees], step: int) -> Figure:
    """Draw the trees of a sentence from the treebank and from the layers."""
    gold, labels = lay_out(gold_tree(sentence), sentence.words), gold_labels(sentence)
    layouts = [gold, *(lay_out(own.trees[0], sentence.words) for own in layers.values())]
    heights = [layout.height + 2.2 + (BARS if place else 0) for place, layout in enumerate(layouts)]
    figure = Figure(figsize=(WIDTHS["page"], 0.6 + LEVEL * sum(heights) + 0.2 * len(layouts)), layout="constrained")
    add_title(figure, run, f"trees from forget gates at step {step:,}; thick: in the treebank, too")
    panels = figure.subplots(len(layouts), height_ratios=heights, squeeze=False)[:, 0]
    _draw(panels[0], gold, sentence.words, labels, set(labels), None)
    panels[0].set_title("treebank", loc="left")
    for axes, layout, (layer, own) in zip(panels[1:], layouts[1:], layers.items(), strict=True):
        _draw(axes, layout, sentence.words, {}, set(labels), own.distances[0])
        axes.set_title(f"{layer}, F1 {100 * sentence_f1(own.trees[0], sentence):.0f}", loc="left")
    return figure


def _draw(
    axes: Axes,
    layout: Layout,
    words: Sequence[str],
    labels: dict[Span, str],
    gold: set[Span],
    distances: np.ndarray | None,
) -> None:
    for node in layout.nodes:
        is_gold = node.span in gold
        color = COLORS[0] if is_gold else COLORS[1]
        for x, height in node.parts:
            corner = (node.x, x, x), (node.height, node.height, height)
            lines = axes.plot(*corner, color="#8a8d93" if labels else color, solid_joinstyle="miter")
            lines[0].set(linewidth=1.4 if is_gold and not labels else 0.8, zorder=1)
        if labels:
            box = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
            axes.text(node.x, node.height, labels[node.span], fontsize=SIZE, ha="center", va="center", bbox=box)
        else:
            axes.plot(
                node.x, node.height, "o", color=color, markersize=3.2, markerfacecolor=color if is_gold else "white"
            )
    for x, word in zip(layout.words, words, strict=True):
        axes.text(x, -0.35, word, fontsize=SIZE, ha="center", va="center")
    bottom = -1.0
    if distances is not None:
        heights = BARS * (distances - distances.min()) / max(float(np.ptp(distances)), 1e-9)
        axes.bar(layout.words, heights, 1.5, bottom=bottom - BARS, color="#b8bbc1")
        bottom -= BARS
    axes.set(xlim=(0, layout.width), ylim=(bottom, layout.height + 0.6), xticks=(), yticks=())
    axes.axis("off")
