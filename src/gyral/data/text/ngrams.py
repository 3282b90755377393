"""n-gram models of a corpus, the reference that stands beside every network's result.

Interpolated Witten-Bell smoothing (Witten and Bell 1991, method C; recursive form: Chen and Goodman 1998, section 2.5):
of a symbol w after a context h of n − 1 symbols,

    P_n(w | h) = (c(h w) + T(h) P_{n−1}(w | h')) / (c(h) + T(h))

with c(h w) how often w follows h in training, c(h) = Σ_w c(h w), T(h) the number of different symbols that follow h,
and h' the context without its oldest symbol. After a context that training does not have, P_n = P_{n−1}; P_0 is uniform
(relative frequencies as P_1 would change characters of the Penn Treebank by less than 10⁻⁵ bits).
"""

import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.core.checks import check_integer
from gyral.core.files import replace_when_written
from gyral.data.text.corpora import Corpus

FORMAT = 1  # of the scores that are kept: another where their computation changes


class Score(NamedTuple):
    """What an n-gram model scores on a split: bits a symbol, and perplexity, 2 to their power."""

    order: int
    bits: float
    perplexity: float


def evaluate(corpus: Corpus, order: int, split: str = "test") -> list[Score]:
    """Train the models of orders 1 to `order` on the training split and score them on another.

    Raises:
        OptionError: `order` below 1, or above the length of the training split.
    """
    probabilities = witten_bell(corpus.splits["train"], corpus.splits[split], len(corpus.vocabulary), order)
    bits = [float(-np.log2(row).mean()) for row in probabilities]
    return [Score(index, value, math.pow(2, value)) for index, value in enumerate(bits, start=1)]


def evaluate_once(corpus: Corpus, order: int, folders: Sequence[Path]) -> list[Score]:
    """Return what `evaluate` does on the test split, from a file in one of the folders where it was done before.

    The file is named after the texts' content. Where no folder can be written it is done each time.

    Raises:
        OptionError: as `evaluate`.
    """
    content = hashlib.sha256(f"{FORMAT} {order} {len(corpus.vocabulary)}".encode())
    for split in ("train", "test"):
        content.update(np.asarray(corpus.splits[split], dtype=np.int64).tobytes())
    names = [folder / f"ngrams-{content.hexdigest()[:16]}.json" for folder in folders]
    for name in names:
        try:
            return [Score(*saved) for saved in json.loads(name.read_text())]
        except (OSError, ValueError, TypeError):  # not there, or damaged
            continue
    scores = evaluate(corpus, order)
    for name in names:
        try:
            replace_when_written(name, lambda temporary: temporary.write_text(json.dumps(scores)))
            break
        except OSError:
            continue
    return scores


def witten_bell(train: np.ndarray, scored: np.ndarray, vocabulary_size: int, order: int) -> np.ndarray:
    """Return the probability of each symbol of a text after those before it, under the models of orders 1 to `order`.

    The first symbols of the text have as much context as there is.

    Args:
        train, scored: (N,) and (n,) integers below `vocabulary_size`.
        vocabulary_size: number of symbols.
        order: the longest n-grams, context and symbol together.

    Returns:
        (order, n) probabilities in double precision.

    Raises:
        OptionError: `order` below 1, or above the length of the training text.
    """
    check_integer("order", order, maximum=len(train))
    probabilities = np.empty((order, len(scored)))
    probability = np.full(len(scored), 1 / vocabulary_size)
    # the context before each symbol, as a number: its place among those of training, or −1. A gram is its context's
    # number and its symbol, so that these stay small at any order
    contexts, scored_contexts = np.zeros(len(train), dtype=np.int64), np.zeros(len(scored), dtype=np.int64)
    for index in range(order):
        grams, numbers, counts = np.unique(
            contexts * vocabulary_size + train[index:], return_inverse=True, return_counts=True
        )
        context_of_gram = grams // vocabulary_size
        context_counts = np.bincount(context_of_gram, weights=counts)
        followers = np.bincount(context_of_gram)

        scored_grams = scored_contexts * vocabulary_size + scored[index:]
        places = np.minimum(np.searchsorted(grams, scored_grams), len(grams) - 1)
        seen = grams[places] == scored_grams
        count = np.where(seen, counts[places], 0)
        # contexts that only end the training text have a number, and nothing after them
        known = (scored_contexts >= 0) & (scored_contexts < len(followers))
        known[known] = followers[scored_contexts[known]] > 0
        context, longer = scored_contexts[known], probability[index:]  # a view: the first symbols keep what they have
        total, types = context_counts[context], followers[context]
        longer[known] = (count[known] + types * longer[known]) / (total + types)
        probabilities[index] = probability

        contexts, scored_contexts = numbers[:-1], np.where(seen, places, -1)[:-1]
    return probabilities
