"""Trees from distances and without a model, and their scores."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from gyral.applications.probes import parsing, trees
from gyral.applications.probes.parsing import baselines, describe_sentences
from gyral.applications.probes.parsing_scores import gold_tree, score, sentence_f1
from gyral.applications.probes.tree_layout import gold_labels, lay_out
from gyral.applications.probes.trees import Tree, children, tree_of_distances
from gyral.data.treebank.brackets import read_trees
from gyral.data.treebank.sentences import ParsedSentence, load, parse_sentence
from tests.applications.probes.data.test_pairs import corpus_of

DATA = Path(os.environ.get("DATA_DIR", Path(__file__).parents[3] / "data"))
MAKERS = {
    "right": trees.right_branching,
    "left": trees.left_branching,
    "balanced": trees.balanced,
    "merges": lambda words: trees.random_merges(words, np.random.default_rng(words)),
    "distances": lambda words: trees.random_distances(words, np.random.default_rng(words)),
}


def sentence(brackets: str) -> ParsedSentence:
    (tree,) = read_trees(brackets, "test")
    return parse_sentence(tree)


FLAT = sentence("(S (NN a) (NN b) (NN c))")
DEEP = sentence("(S (NP (DT a) (NN b)) (VP (VB c) (NP (PP (IN d) (NN e)))))")


def recursive(distances: list[float], start: int = 0) -> list[tuple[int, int]]:
    """Build a tree as the authors' code does, by recursion over lists."""
    end = start + len(distances)
    if len(distances) < 2:
        return []
    split = distances.index(max(distances))
    found = [(start, end)]
    if split < len(distances) - 1:
        found.append((start + split, end))
    return found + recursive(distances[:split], start) + recursive(distances[split + 1 :], start + split + 1)


@pytest.mark.parametrize("length", range(8))
def test_distances_split_as_in_the_authors_code(length: int) -> None:
    random = np.random.default_rng(length)
    for _ in range(20):
        distances = random.integers(4, size=length)  # with ties
        assert tree_of_distances(distances) == sorted({*recursive(distances.tolist())}, key=lambda s: (s[0], -s[1]))


def test_trees_by_hand() -> None:
    assert tree_of_distances([0.1, 0.3, 0.2, 0.4]) == [(0, 4), (0, 3), (1, 3)]
    assert tree_of_distances([1, 1, 1]) == trees.right_branching(3) == [(0, 3), (1, 3)]
    assert trees.left_branching(3) == [(0, 3), (0, 2)]
    assert trees.balanced(6) == [(0, 6), (0, 2), (2, 6), (2, 4), (4, 6)]
    assert trees.binarized([(0, 5), (1, 3)], 5) == [(0, 5), (1, 5), (1, 3), (3, 5)]


@pytest.mark.parametrize("name", MAKERS)
def test_trees_are_binary(name: str) -> None:
    for words in range(12):
        tree = MAKERS[name](words)
        assert len(tree) == len({*tree}) == max(words - 1, 0)
        assert all(len(children(tree, span)) == 2 for span in tree)
        assert tree[:1] == [(0, words)] * (words > 1)


def test_random_trees_have_the_distribution_of_random_merges() -> None:
    def merges(parts: tuple[tuple[int, int], ...], chance: float) -> dict[tuple[int, int], float]:
        if len(parts) == 1:
            return {}
        found: dict[tuple[int, int], float] = {}
        each = chance / (len(parts) - 1)
        for (left, right), rest in ((pair, place) for place, pair in enumerate(itertools.pairwise(parts))):
            merged = (left[0], right[1])
            further = merges((*parts[:rest], merged, *parts[rest + 2 :]), each)
            for span, value in [(merged, each), *further.items()]:
                found[span] = found.get(span, 0) + value
        return found

    expected = merges(tuple((place, place + 1) for place in range(5)), 1.0)
    random = np.random.default_rng(0)
    drawn = [trees.random_merges(5, random) for _ in range(4000)]
    for span, chance in expected.items():
        assert np.mean([span in tree for tree in drawn]) == pytest.approx(chance, abs=0.03)


def test_f1_by_hand() -> None:
    assert sentence_f1(gold_tree(DEEP), DEEP) == 1
    assert gold_tree(DEEP) == [(0, 5), (0, 2), (2, 5), (3, 5)]
    assert sentence_f1(trees.right_branching(5), DEEP) == pytest.approx(2 * 2 / (3 + 3))
    assert sentence_f1(trees.right_branching(3), FLAT) == 0  # the treebank has no constituent, the tree one
    assert sentence_f1([(0, 3)], FLAT) == 1
    assert sentence_f1([(0, 2)], sentence("(S (NN a) (NN b))")) == 1
    assert sentence_f1([], sentence("(S (NN a))")) == 1


def test_scores_by_hand() -> None:
    found = score([trees.right_branching(5), trees.right_branching(3)], [DEEP, FLAT])
    assert found.f1 == found.short_f1 == pytest.approx(100 * (2 / 3 + 0) / 2)
    assert found.depth == pytest.approx(((5 + 4 + 3 + 2) / 5 + (3 + 2) / 3) / 2)
    assert found.total == {"S": 2, "NP": 2, "VP": 1, "PP": 1}
    assert (found.recall("S"), found.recall("NP"), found.recall("PP")) == (100, 50, 100)
    assert np.isnan(found.recall("ADJP"))


def test_a_layout_has_words_in_order_and_parts_below() -> None:
    layout = lay_out(gold_tree(DEEP), DEEP.words)
    assert sorted(layout.words) == list(layout.words)
    assert (layout.height, layout.nodes[-1].span) == (3, (0, 5))
    assert all(height < node.height for node in layout.nodes for _, height in node.parts)
    assert gold_labels(DEEP) == {(0, 5): "S", (0, 2): "NP", (2, 5): "VP", (3, 5): "NP–PP"}
    assert lay_out([], ["word"]).nodes == ()


def test_the_sample_is_described_by_whether_it_was_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "treebank_sentences", lambda *_: {("the", "author", "laughs")})
    trained, held_out = (corpus_of(f"a b\n{text}\n", "word") for text in ("the author laughs", "the author laughs too"))
    assert describe_sentences("treebank", "data", trained) == "WSJ 00–01, training text"
    assert describe_sentences("treebank", "data", held_out) == "WSJ 00–01, not in the training text"
    assert describe_sentences("folder", "data", trained) == "folder"


def expected_of_random_merges(words: int, gold: Tree) -> float:
    """Return the expected F1: a span of k words is merged with probability 1/k at an end, else 2/(k(k + 1))."""
    inner = [span for span in gold if span != (0, words)]
    if not inner:
        return float(words <= 2)
    lengths = [(end - start, start == 0 or end == words) for start, end in inner]
    found = sum(1 / length if at_end else 2 / (length * (length + 1)) for length, at_end in lengths)
    return 2 * found / (words - 2 + len(inner))


@pytest.mark.slow
def test_the_sample_gives_the_scores_of_the_specification() -> None:
    if not (DATA / "treebank" / "treebank.zip").is_file():
        pytest.skip(f"no treebank/treebank.zip in {DATA} (set DATA_DIR)")
    sentences = load("treebank", DATA)
    short = [each for each in sentences if len(each.words) <= 10]
    assert (len(sentences), len(short)) == (3914, 555)
    expected = {
        "right branching": (39.9, 58.6),
        "left branching": (8.6, 19.2),
        "balanced trees": (22.5, 39.3),
        "best binary trees": (84.4, 84.8),
    }
    found = {row.name: row.draws for row in baselines(sentences)}
    for name, scores in expected.items():
        assert found[name][0][:2] == pytest.approx(scores, abs=0.1)
    for part, value in ((sentences, 18.04), (short, 31.63)):
        merged = [100 * expected_of_random_merges(len(each.words), gold_tree(each)) for each in part]
        assert np.mean(merged) == pytest.approx(value, abs=0.01)
    draws = found["random trees, mean of 5"]
    assert np.mean([draw.f1 for draw in draws]) == pytest.approx(18.04, abs=0.3)
    assert np.mean([draw.short_f1 for draw in draws]) == pytest.approx(31.63, abs=1.5)  # deviation 1.05 a draw
    oracle = score([gold_tree(each) for each in sentences], sentences)
    assert oracle[:2] == (100, 100)
    assert {oracle.recall(label) for label in oracle.total} == {100}
