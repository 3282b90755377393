"""Scores of induced trees compared to a treebank, as in the evaluation of Shen et al. (ICLR 2019).

The scores equal those of their code: test_phrase_grammar.py, data_ptb.py and parse_comparison.py of
yikangshen/Ordered-Neurons on GitHub.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gyral.applications.probes.trees import Tree
from gyral.data.treebank.sentences import ParsedSentence

SHORT = 10  # words of the sentences of "WSJ10"


class ParsingScores(NamedTuple):
    """Scores of the trees of some sentences.

    Attributes:
        f1: mean over all sentences of the unlabeled F1, in percent.
        short_f1: the same over the sentences with at most `SHORT` words; NaN if there are none.
        depth: mean over the sentences of the mean number of constituents that contain a word.
        correct, total: for each label, the number of constituents of the treebank that are in the trees, and of all
            constituents. Constituents have two or more words and include whole sentences.
    """

    f1: float
    short_f1: float
    depth: float
    correct: Counter[str]
    total: Counter[str]

    def recall(self, label: str) -> float:
        """Return the share of the constituents with this label that are in the trees, in percent."""
        return 100 * self.correct[label] / self.total[label] if self.total[label] else float("nan")


def gold_tree(sentence: ParsedSentence) -> Tree:
    """Return the unlabeled tree of a sentence: its constituents with two or more words, each span once."""
    spans = ((start, end) for start, end, _ in sentence.constituents if end - start > 1)
    return list(dict.fromkeys(spans))


def sentence_f1(tree: Tree, sentence: ParsedSentence) -> float:
    """Return the unlabeled F1, in [0, 1], of the constituents other than the whole sentence.

    If the treebank has no such constituent, the score is 1 if the tree has none, as with one or two words, and else 0.
    """
    whole = (0, len(sentence.words))
    found, gold = set(tree) - {whole}, set(gold_tree(sentence)) - {whole}
    if not gold:
        return float(not found)
    return 2 * len(found & gold) / (len(found) + len(gold))


def score(trees: Sequence[Tree], sentences: Sequence[ParsedSentence]) -> ParsingScores:
    """Return the scores of one tree for each sentence."""
    f1, short, depths = [], [], []
    correct: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for tree, sentence in zip(trees, sentences, strict=True):
        words, found = len(sentence.words), set(tree)
        f1.append(100 * sentence_f1(tree, sentence))
        if words <= SHORT:
            short.append(f1[-1])
        depths.append(sum(end - start for start, end in tree) / words)
        for start, end, label in {each for each in sentence.constituents if each.end - each.start > 1}:
            total[label] += 1
            correct[label] += (start, end) in found
    return ParsingScores(_mean(f1), _mean(short), _mean(depths), correct, total)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else float("nan")
