"""The figure of trees from forget gates."""

import numpy as np

from gyral.applications.probes.figure import draw_trees
from gyral.applications.probes.parsing import InducedTrees
from gyral.data.treebank.brackets import read_trees
from gyral.data.treebank.sentences import parse_sentence
from gyral.plotting.style import style
from gyral.runs.directory import Run
from tests.helpers.figure_checks import check_figure


def test_each_layer_is_below_the_treebank(run: Run) -> None:
    (tree,) = read_trees("(S (NP (DT the) (NN author)) (VP (VB laughs) (ADVP (RB very) (RB often))))", "test")
    distances = np.array([0.9, 0.1, 0.5, 0.3, 0.2])
    layers = {name: InducedTrees([distances], [[(0, 5), (1, 5), (2, 5), (3, 5)]]) for name in ("layer 1", "layer 2")}
    with style():
        figure = draw_trees(run, parse_sentence(tree), layers, 24)
        check_figure(figure)
    treebank, *others = figure.axes
    assert {"S", "NP", "VP", "ADVP", "laughs"} <= {text.get_text() for text in treebank.texts}
    assert [axes.get_title(loc="left") for axes in others] == ["layer 1, F1 67", "layer 2, F1 67"]
    heights = [bar.get_height() for bar in others[0].patches]
    assert np.allclose(heights, 2 * (distances - 0.1) / 0.8)
    assert all(text.get_text() not in ("S", "NP") for axes in others for text in axes.texts)
