"""n-gram models of a corpus, a reference for the results of networks.

Interpolated Witten-Bell smoothing (Witten and Bell 1991, method C; recursive form: Chen and Goodman 1998, section 2.5):
for a symbol w after a context h of n − 1 symbols,

    P_n(w | h) = (c(h w) + T(h) P_{n−1}(w | h')) / (c(h) + T(h))

where c(h w) is the number of times that w follows h in the training split, c(h) = Σ_w c(h w), T(h) is the number of
different symbols that follow h, and h' is the context without its oldest symbol. For a context that is not in the
training split, P_n = P_{n−1}. P_0 is uniform. With relative frequencies as P_1, the result on characters of the
Penn Treebank would change by less than 10⁻⁵ bits.
"""

import hashlib
import json
import logging
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gyral.core.checks import check_integer
from gyral.core.files import write_atomically
from gyral.data.text.corpora import Corpus

log = logging.getLogger(__name__)

FORMAT = 2  # version of the cached scores; increment it when their computation changes


class Score(NamedTuple):
    """Score of an n-gram model on a split: bits per symbol, and perplexity, 2 to the power of the bits."""

    order: int
    bits: float
    perplexity: float


def evaluate(corpus: Corpus, order: int, split: str = "test") -> list[Score]:
    """Train models of orders 1 to `order` on the training split and score them on another split.

    Raises:
        OptionError: `order` is below 1, or above the length of the training split.
    """
    probabilities = witten_bell(corpus.splits["train"], corpus.splits[split], len(corpus.vocabulary), order)
    bits = [float(-np.log2(row).mean()) for row in probabilities]
    return [Score(index, value, math.pow(2, value)) for index, value in enumerate(bits, start=1)]


def evaluate_once(corpus: Corpus, order: int, folders: Sequence[Path]) -> list[Score]:
    """Return the scores of `evaluate` on the test split, from a cache file if one of the folders contains it.

    The name of the file depends on the content of the texts. A file that does not match its checksum is replaced. If no
    folder can be written, the scores are not cached.

    Raises:
        OptionError: as `evaluate`.
    """
    content = hashlib.sha256(f"{FORMAT} {order} {len(corpus.vocabulary)}".encode())
    for split in ("train", "test"):
        content.update(np.asarray(corpus.splits[split], dtype=np.int64).tobytes())
    names = [folder / f"ngrams-{content.hexdigest()[:16]}.json" for folder in folders]
    for name in names:
        try:
            if not name.is_file():
                continue
            saved = json.loads(name.read_text(encoding="utf-8"))
            if saved["checksum"] != _checksum(saved["scores"]):
                raise ValueError("checksum")
            return [Score(*score) for score in saved["scores"]]
        except Exception as error:  # JSON of other values raises many kinds
            log.warning("%s is damaged (%s) and is computed again", name, error)
    scores = evaluate(corpus, order)
    text = json.dumps({"scores": scores, "checksum": _checksum(scores)})
    for name in names:
        try:
            write_atomically(name, text)
            break
        except OSError:
            continue
    return scores


def _checksum(scores: Sequence[Sequence[float]]) -> int:
    return zlib.crc32(json.dumps(scores).encode())


def witten_bell(train: np.ndarray, scored: np.ndarray, vocabulary_size: int, order: int) -> np.ndarray:
    """Return the probability of each symbol of a text given the preceding ones, for models of orders 1 to `order`.

    The first symbols of the text have a shorter context.

    Args:
        train, scored: (N,) and (n,) integers below `vocabulary_size`.
        vocabulary_size: number of symbols.
        order: length of the longest n-grams, including the predicted symbol.

    Returns:
        (order, n) probabilities in double precision.

    Raises:
        OptionError: `order` is below 1, or above the length of the training text.
    """
    check_integer("order", order, maximum=len(train))
    probabilities = np.empty((order, len(scored)))
    probability = np.full(len(scored), 1 / vocabulary_size)
    # The context before each symbol is its index among the contexts of training, or −1. A gram combines the index of
    # its context with its symbol, so that the numbers stay small for every order.
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
        # the context at the end of the training text has an index but no following symbol
        known = (scored_contexts >= 0) & (scored_contexts < len(followers))
        known[known] = followers[scored_contexts[known]] > 0
        context, longer = (
            scored_contexts[known],
            probability[index:],
        )  # a view: the first symbols keep their probability
        total, types = context_counts[context], followers[context]
        longer[known] = (count[known] + types * longer[known]) / (total + types)
        probabilities[index] = probability

        contexts, scored_contexts = numbers[:-1], np.where(seen, places, -1)[:-1]
    return probabilities
