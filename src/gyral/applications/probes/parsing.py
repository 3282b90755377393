"""Parsing without supervision: the trees from the gates of a language model, compared to a treebank."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.applications.probes import trees
from gyral.applications.probes.distances import syntactic_distances
from gyral.applications.probes.parsing_scores import SHORT, ParsingScores, gold_tree, score
from gyral.applications.probes.published import TREES
from gyral.applications.probes.trees import Tree, tree_of_distances
from gyral.core.errors import OptionError, UserError
from gyral.data.text.corpora import Corpus
from gyral.data.treebank.sentences import SAMPLE, ParsedSentence, treebank_sentences
from gyral.data.vocabulary import END_OF_LINE
from gyral.runs.evaluation_report import EvaluationReport, number
from gyral.tasks.base import SequenceTask
from gyral.tasks.text import TextTask

LABELS = ("ADJP", "NP", "PP", "INTJ")  # labels with published recall
MORE_LABELS = ("VP", "S", "SBAR")
DRAWS = 5  # number of draws of random trees, as in the paper
SEED = 1


class InducedTrees(NamedTuple):
    """Distances and trees of a layer of a model.

    Attributes:
        distances: for each sentence (n,), the distance between each word and the word before it.
        trees: the tree of each sentence.
    """

    distances: list[np.ndarray]
    trees: list[Tree]


class Row(NamedTuple):
    """The scores of one kind of trees, for each draw if they are random."""

    name: str
    draws: list[ParsingScores]


def induce(task: SequenceTask, sentences: Sequence[ParsedSentence], source: str | Path) -> dict[str, InducedTrees]:
    """Return the trees of each layer that has a forget gate, by "layer 1", "layer 2", ….

    Args:
        task: a trained task.
        sentences: sentences of a treebank.
        source: the name of the treebank, for errors.

    Raises:
        OptionError: the task is not a language model of words, or its cells have no forget gate.
    """
    if not isinstance(task, TextTask):
        raise OptionError("parse", source, f"needs a language model; this is a run of {type(task).__name__}")
    try:
        found = syntactic_distances(task, [sentence.words for sentence in sentences])
    except UserError as error:
        raise OptionError("parse", source, str(error)) from None
    return {layer: InducedTrees(own, [tree_of_distances(each) for each in own]) for layer, own in found.items()}


def baselines(sentences: Sequence[ParsedSentence]) -> Iterator[Row]:
    """Yield the scores of trees without a model, and of the best possible binary trees."""
    lengths = [len(sentence.words) for sentence in sentences]
    fixed = (
        ("right branching", trees.right_branching),
        ("left branching", trees.left_branching),
        ("balanced trees", trees.balanced),
    )
    for name, make in fixed:
        yield Row(name, [score([make(length) for length in lengths], sentences)])
    drawn = (("random trees", trees.random_merges), ("random distances", trees.random_distances))
    for name, draw in drawn:
        random = np.random.default_rng(SEED)
        drawn_trees = ([draw(length, random) for length in lengths] for _ in range(DRAWS))
        yield Row(f"{name}, mean of {DRAWS}", [score(one, sentences) for one in drawn_trees])
    best = [trees.binarized(gold_tree(sentence), len(sentence.words)) for sentence in sentences]
    yield Row("best binary trees", [score(best, sentences)])


def report_parsing(
    induced: dict[str, InducedTrees], sentences: Sequence[ParsedSentence], model: str, data: str
) -> EvaluationReport:
    """Return the table of the scores of a model's layers, of baselines and of published trees.

    Args:
        induced: the trees of the layers, from `induce`.
        sentences: sentences of a treebank.
        model: description of the model.
        data: description of the sentences.
    """
    layers = [Row(layer, [score(own.trees, sentences)]) for layer, own in induced.items()]
    others = list(baselines(sentences))
    rows = [_cells(row) for row in layers]
    rows += [[], *map(_cells, others), []]
    for name, of_paper in TREES.items():
        recalls = [number(of_paper.recall.get(label)) for label in LABELS]
        scores = (number(value) for value in (of_paper.f1, of_paper.short_f1, of_paper.depth))
        rows.append([f"{name}, published", *scores, *recalls, *("–" for _ in MORE_LABELS)])
    numbers = {f"{row.name}/{name}": value for row in (*layers, *others) for name, value in _numbers(row).items()}
    short = sum(len(sentence.words) <= SHORT for sentence in sentences)
    heads = ["unlabeled F1, %", f"all {len(sentences):,}", f"{short:,} of ≤ {SHORT} words", "depth"]
    return EvaluationReport(
        f"Parsing without supervision: {model} on {data}",
        [*heads, *LABELS, *MORE_LABELS],
        rows,
        NOTES,
        numbers,
    )


NOTES = (
    "F1 of each sentence without the whole sentence and single words, averaged over sentences. ADJP to SBAR: recall of "
    "the treebank's constituents with this label, whole sentences included, in per cent. Depth: mean number of "
    "constituents that contain a word.",
    "Published: Shen et al. (ICLR 2019), section 23 of the Wall Street Journal and WSJ10, means of five seeds, recall "
    "of the best. F1 of the last four rows is quoted from memory.",
)


def describe_sentences(source: str | Path, data_dir: str | Path, corpus: Corpus) -> str:
    """Return a description of a treebank that says whether the model was trained on its sentences."""
    if source != SAMPLE:
        return str(source)
    sample = treebank_sentences(data_dir, corpus.vocabulary.index)
    words = corpus.vocabulary
    line_end = words.index.get(END_OF_LINE)
    text = corpus.splits["train"].tolist()
    read, start = set(), 0
    for place, token in enumerate(text):
        if token == line_end:
            read.add(tuple(words.symbols[each] for each in text[start:place]))
            start = place + 1
    found = len(sample & read)
    return "WSJ 00–01, training text" if found else "WSJ 00–01, not in the training text"


def _cells(row: Row) -> list[str]:
    scores = _numbers(row)
    recalls = (scores.get(f"recall/{label}") for label in (*LABELS, *MORE_LABELS))
    return [row.name, *(number(scores[name]) for name in ("f1", "short_f1", "depth")), *map(number, recalls)]


def _numbers(row: Row) -> dict[str, float]:
    """Return the scores by name: means over the draws and, for several draws, standard deviations of F1."""
    each = [
        {
            **{"f1": draw.f1, "short_f1": draw.short_f1, "depth": draw.depth},
            **{f"recall/{label}": draw.recall(label) for label in sorted(draw.total)},
        }
        for draw in row.draws
    ]
    numbers = {name: float(np.mean([scores[name] for scores in each])) for name in each[0]}
    if len(each) > 1:
        for name in ("f1", "short_f1"):
            numbers[f"{name}_deviation"] = float(np.std([scores[name] for scores in each], ddof=1))
    return numbers
